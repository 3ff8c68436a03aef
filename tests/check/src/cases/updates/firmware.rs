//! What firmware and hypervisor can do to a production system: strings in the machine's tables, keys in the firmware, images nobody signed.

use std::fs;
use std::time::Duration;

use warden_vm::quiet;

use super::chain::bench;
use super::machine::{Setup, UpdateBox};
use crate::images::warden_image;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// The loader stub appends what stands behind this to the signed command line.
const EXTRA: &str = "io.systemd.stub.kernel-cmdline-extra=";
/// A change of the agent's unit handed over as a credential. In it, in base64: `[Unit]`, `ConditionPathExists=/planted`. Believed, it would
/// keep the agent from starting.
const PLANTED: &str = "io.systemd.credential.binary:systemd.unit-dropin.warden-agent.service=W1VuaXRdCkNvbmRpdGlvblBhdGhFeGlzdHM9L3BsYW50ZWQK";

/// `smbios`
pub fn smbios(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench(stage, task)?;
    let bench = held.get()?;
    bench.machine = None;
    let mut machine = UpdateBox::prepare(&mut bench.works, stage, "smbios", &Setup::default(), &task.log)?;
    let zeros = "0".repeat(64);
    for words in ["systemd.debug_shell=ttyS1", "init=/bin/sh", &format!("roothash={zeros}")] {
        machine.machine().oem_strings = vec![format!("{EXTRA}{words}")];
        machine.switch_on()?;
        let refused = machine.guest()?.wait("(FATAL the kernel command line has [^\n]*)", quiet(30));
        result.expect(refused.is_ok(), format!("a machine that adds {words} is refused: {}", refused.as_deref().unwrap_or_default().trim()));
        std::thread::sleep(Duration::from_secs(2));
        let serial = machine.serial();
        result.expect(!serial.contains("is verified and mounted"), "before the root is opened");
        machine.unplug();
    }
    machine.machine().oem_strings = vec![PLANTED.to_owned()];
    machine.switch_on()?;
    let up = machine.wait_up();
    result.expect(up.is_ok(), format!("a change of a unit that comes as a credential is not believed, and the box starts as usual ({up:?})"));
    Ok(())
}

/// `secure-boot`
pub fn secure_boot(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench(stage, task)?;
    let bench = held.get()?;
    bench.machine = None;
    let mut machine = UpdateBox::prepare(&mut bench.works, stage, "secure-boot", &Setup::default(), &task.log)?;
    let (_, places) = stage.images();
    warden_image(places, &["vars"], Duration::from_secs(600), &task.log)?;
    let stores = places.root.join("target/image/vars");

    // Keys of a vendor, as machines are sold: what we signed is a stranger's there.
    machine.machine().secure_boot = Some(stores.join("vendor.fd"));
    fresh_variables(&machine)?;
    machine.switch_on()?;
    let denied = machine.guest()?.wait("(Access Denied|Security Violation)", quiet(20));
    result.expect(denied.is_ok(), format!("with a vendor's keys the image is denied ({})", denied.as_deref().unwrap_or_default()));
    result.expect(!machine.serial().contains("initrd: "), "and nothing of it runs");
    machine.unplug();

    // Setup mode: everything starts, and the box says that nothing is enforced.
    machine.machine().secure_boot = Some(stores.join("setup.fd"));
    fresh_variables(&machine)?;
    machine.switch_on()?;
    machine.wait_up()?;
    let off = issue(&mut machine, true)?;
    result.expect(off, "in setup mode the box starts, and an issue says that Secure Boot is off");
    machine.switch_off()?;

    // Our keys: it starts with everything enforced. How much the kernel tells is nothing that it keeps others from choosing.
    machine.machine().secure_boot = Some(stores.join("ours.fd"));
    machine.machine().oem_strings = vec![format!("{EXTRA}loglevel=7")];
    fresh_variables(&machine)?;
    machine.switch_on()?;
    machine.wait_up()?;
    let off = issue(&mut machine, false)?;
    result.expect(!off, "with our keys the box starts, and the issue is over");
    let serial = machine.serial();
    result.expect(serial.contains("Secure boot enabled"), "its kernel says that Secure Boot is enabled");
    let locked = serial.lines().find(|line| line.contains("Kernel is locked down")).unwrap_or_default().trim().to_owned();
    result.expect(locked.contains("EFI Secure Boot"), format!("and that it is locked down for that: {locked}"));
    machine.machine().oem_strings.clear();
    machine.switch_off()?;

    // The same firmware and a kernel image that was changed after signing: both slots.
    for slot in ["a", "b"] {
        machine.drive().spoil_kernel(slot)?;
    }
    machine.switch_on()?;
    let denied = machine.guest()?.wait("(?i)(Access Denied|Security Violation|Error loading[^\n]*|Bad signature[^\n]*)", quiet(20));
    result.expect(denied.is_ok(), format!("a kernel image that was changed is denied ({})", denied.as_deref().unwrap_or_default()));
    std::thread::sleep(Duration::from_secs(3));
    result.expect(!machine.serial().contains("initrd: "), "and nothing of it runs");
    Ok(())
}

/// The next start takes the machine's variable store afresh.
fn fresh_variables(machine: &UpdateBox) -> Result<(), String> {
    match fs::remove_file(machine.run_dir().join("vars.fd")) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("the variable store: {e}")),
        _ => Ok(()),
    }
}

/// Whether the issue about Secure Boot is open, waiting a while for it to be as expected.
fn issue(machine: &mut UpdateBox, expected: bool) -> Result<bool, String> {
    let console = machine.console()?;
    let until = std::time::Instant::now() + quiet(20);
    loop {
        let open = console.expect("GET", "/api/issues", None, &[200])?.json()["open"].to_string().contains("secure_boot_off");
        if open == expected || std::time::Instant::now() > until {
            return Ok(open);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}
