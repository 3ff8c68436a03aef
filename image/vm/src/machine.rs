//! The description of a guest and, from it, QEMU's command line. Pure: files named here are neither looked at nor made.
//!
//! Emulation is always in software: a `/dev/kvm` that exists may still not be able to run a stock kernel.

use std::path::{Path, PathBuf};

/// A port of the host that leads to one of the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// Port on 127.0.0.1.
    pub host: u16,
    /// Port on the guest's DHCP address.
    pub guest: u16,
}

/// How the guest starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boot {
    /// Firmware, boot loader, entries: the whole chain of the disk.
    Uefi,
    /// Kernel and initrd given from outside, for quick looks at the root.
    Direct(DirectBoot),
}

/// The files of a direct boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectBoot {
    /// The kernel.
    pub kernel: PathBuf,
    /// The initrd.
    pub initrd: PathBuf,
    /// The kernel command line.
    pub command_line: String,
}

/// A drive that is written in place: its file is the drive, before the run and after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// The raw file.
    pub file: PathBuf,
    /// The serial number the guest sees; at most 20 letters.
    pub serial: String,
    /// The firmware tries drives with a smaller number first; without one it does not try the drive by itself.
    pub boot_order: Option<u32>,
    /// A USB stick instead of a built-in disk. Only the kernel for hardware has the driver.
    pub usb: bool,
}

impl Drive {
    /// A built-in disk that the firmware does not start from by itself.
    pub fn new(file: impl Into<PathBuf>, serial: &str) -> Self {
        Self { file: file.into(), serial: serial.to_owned(), boot_order: None, usb: false }
    }
}

/// A guest to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// How it starts.
    pub boot: Boot,
    /// The disk image (raw); it is never written, the run has its own overlay. `None` when the guest has drives only.
    pub disk: Option<PathBuf>,
    /// Further raw disks, also behind overlays.
    pub more_disks: Vec<PathBuf>,
    /// Drives that are written in place.
    pub drives: Vec<Drive>,
    /// A controller into which disks can be plugged while it runs ([`crate::Guest::plug`]).
    pub sockets_for_disks: bool,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Forwarded ports.
    pub forwards: Vec<Forward>,
    /// Without it the guest has no network card at all.
    pub network: bool,
    /// No way out of the network: no name service, nothing at 10.0.2.2. Forwarded ports still lead in.
    pub closed: bool,
    /// What the hardware clock says at power-on, `1990-01-01T00:00:00`; `None` = the host's time.
    pub clock: Option<String>,
    /// Firmware that checks signatures, with this variable store (a file that is copied for each fresh run); nothing for firmware that
    /// starts everything.
    pub secure_boot: Option<PathBuf>,
    /// OEM strings of the machine (SMBIOS type 11), which loader stubs and systems read; for tests of what they may not do.
    pub oem_strings: Vec<String>,
}

impl Machine {
    /// A guest that boots `disk` through UEFI with 1 GiB, two CPUs and no forwarded port.
    pub fn from_disk(disk: impl Into<PathBuf>) -> Self {
        Self { disk: Some(disk.into()), ..Self::from_drives(Vec::new()) }
    }

    /// A guest with these drives and nothing else, as [`Machine::from_disk`].
    pub fn from_drives(drives: Vec<Drive>) -> Self {
        Self {
            boot: Boot::Uefi,
            disk: None,
            more_disks: Vec::new(),
            drives,
            sockets_for_disks: false,
            memory_mib: 1024,
            cpus: 2,
            forwards: Vec::new(),
            network: true,
            closed: false,
            clock: None,
            secure_boot: None,
            oem_strings: Vec::new(),
        }
    }
}

/// The files of one run.
pub(crate) struct RunFiles {
    pub(crate) vars: PathBuf,
    pub(crate) overlays: Vec<PathBuf>,
    /// Everything the first serial port said.
    pub(crate) console: PathBuf,
    pub(crate) line: PathBuf,
    pub(crate) shell: PathBuf,
    pub(crate) qmp: PathBuf,
}

pub(crate) const FIRMWARE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
/// The same with signature checks; its variables are kept by code in system management mode.
pub(crate) const SECURE_FIRMWARE: &str = "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd";
pub(crate) const FIRMWARE_VARS: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

pub(crate) fn arguments(machine: &Machine, run: &RunFiles) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|w| (*w).to_owned()));
    let secure = machine.secure_boot.is_some() && machine.boot == Boot::Uefi;
    add(&["-machine", if secure { "q35,smm=on" } else { "q35" }, "-accel", "tcg,thread=multi", "-cpu", "max", "-nodefaults", "-display", "none"]);
    add(&["-smp", &machine.cpus.to_string(), "-m", &machine.memory_mib.to_string()]);
    add(&["-device", "virtio-rng-pci", "-device", "i6300esb", "-watchdog-action", "reset"]);
    // What is said goes to a file and what is typed comes out of a pipe. Over one socket for both, letters come twice when its reader is slow.
    let console = format!("file,id=console,path={},input-path={}", text(&run.console), text(&run.line));
    add(&["-chardev", &console, "-serial", "chardev:console"]);
    add(&["-chardev", &format!("socket,id=shell,server=on,wait=off,path={}", text(&run.shell)), "-serial", "chardev:shell"]);
    add(&["-qmp", &format!("unix:{},server=on,wait=off", text(&run.qmp))]);
    match &machine.boot {
        Boot::Uefi => {
            let firmware = if secure { SECURE_FIRMWARE } else { FIRMWARE };
            if secure {
                add(&["-global", "driver=cfi.pflash01,property=secure,value=on", "-global", "ICH9-LPC.disable_s3=1"]);
            }
            add(&["-drive", &format!("if=pflash,format=raw,unit=0,readonly=on,file={firmware}")]);
            add(&["-drive", &format!("if=pflash,format=raw,unit=1,file={}", text(&run.vars))]);
        }
        Boot::Direct(direct) => {
            add(&["-kernel", &text(&direct.kernel), "-initrd", &text(&direct.initrd), "-append", &direct.command_line]);
        }
    }
    for (n, overlay) in run.overlays.iter().enumerate() {
        add(&["-drive", &format!("if=none,id=disk{n},format=qcow2,cache=unsafe,discard=unmap,file={}", text(overlay))]);
        add(&["-device", &format!("virtio-blk-pci,drive=disk{n},serial=DISK{n},bootindex={n}")]);
    }
    if machine.drives.iter().any(|drive| drive.usb) {
        add(&["-device", "qemu-xhci"]);
    }
    for (n, drive) in machine.drives.iter().enumerate() {
        add(&["-drive", &format!("if=none,id=drive{n},format=raw,cache=unsafe,discard=unmap,file={}", text(&drive.file))]);
        let kind = if drive.usb { "usb-storage,removable=on" } else { "virtio-blk-pci" };
        let order = drive.boot_order.map_or_else(String::new, |order| format!(",bootindex={order}"));
        add(&["-device", &format!("{kind},drive=drive{n},serial={}{order}", drive.serial)]);
    }
    if machine.sockets_for_disks {
        add(&["-device", "virtio-scsi-pci,id=sockets"]);
    }
    if let Some(clock) = &machine.clock {
        add(&["-rtc", &format!("base={clock},clock=vm")]);
    }
    for string in &machine.oem_strings {
        add(&["-smbios", &format!("type=11,value={}", string.replace(',', ",,"))]);
    }
    let mut network = if machine.network { "user,model=virtio-net-pci".to_owned() } else { "none".to_owned() };
    if machine.network && machine.closed {
        network.push_str(",restrict=on");
    }
    for forward in machine.forwards.iter().filter(|_| machine.network) {
        network.push_str(&format!(",hostfwd=tcp:127.0.0.1:{}-:{}", forward.host, forward.guest));
    }
    add(&["-nic", &network]);
    args
}

/// QEMU reads a comma as the end of a value; a doubled one stands for itself.
fn text(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> RunFiles {
        RunFiles {
            vars: "/r/vars".into(),
            overlays: vec!["/r/a,b.qcow2".into()],
            console: "/r/c".into(),
            line: "/r/l".into(),
            shell: "/r/s".into(),
            qmp: "/r/q".into(),
        }
    }

    #[test]
    fn hardware_emulation_is_never_asked_for() {
        let args = arguments(&Machine::from_disk("/d"), &run()).join(" ");
        assert!(args.contains("-accel tcg,thread=multi") && !args.contains("kvm"));
    }

    #[test]
    fn forwarded_ports_listen_on_loopback_only() {
        let mut machine = Machine::from_disk("/d");
        machine.forwards.push(Forward { host: 18080, guest: 8080 });
        assert!(arguments(&machine, &run()).iter().any(|a| a.ends_with("hostfwd=tcp:127.0.0.1:18080-:8080")));
    }

    #[test]
    fn a_comma_in_a_path_does_not_become_an_option() {
        assert!(arguments(&Machine::from_disk("/d"), &run()).iter().any(|a| a.ends_with("file=/r/a,,b.qcow2")));
    }

    #[test]
    fn drives_carry_their_serial_number_and_their_place_in_the_boot_order() {
        let machine =
            Machine::from_drives(vec![Drive { boot_order: Some(1), ..Drive::new("/d", "TARGET") }, Drive { usb: true, ..Drive::new("/s", "STICK") }]);
        let args = arguments(&machine, &run()).join(" ");
        assert!(args.contains("virtio-blk-pci,drive=drive0,serial=TARGET,bootindex=1"));
        assert!(args.contains("usb-storage,removable=on,drive=drive1,serial=STICK "));
    }

    #[test]
    fn a_machine_without_a_network_has_no_card_and_no_ports() {
        let mut machine = Machine::from_disk("/d");
        machine.network = false;
        machine.forwards.push(Forward { host: 18080, guest: 8080 });
        let args = arguments(&machine, &run()).join(" ");
        assert!(args.contains("-nic none") && !args.contains("hostfwd") && !args.contains("virtio-net"));
    }

    #[test]
    fn a_machine_without_a_way_out_still_lets_its_owner_in() {
        let mut machine = Machine { closed: true, ..Machine::from_disk("/d") };
        machine.forwards.push(Forward { host: 18443, guest: 443 });
        let args = arguments(&machine, &run()).join(" ");
        assert!(args.contains("restrict=on,hostfwd=tcp:127.0.0.1:18443-:443"), "{args}");
    }

    #[test]
    fn the_golden_disk_is_not_on_the_command_line() {
        assert!(!arguments(&Machine::from_disk("/golden.img"), &run()).iter().any(|a| a.contains("golden")));
    }
}
