//! A booted appliance: the image in a virtual machine, seen as its owner sees it.
//!
//! In: a disk. Out: its console over the forwarded encrypted port (the authority is fetched from the plain one, as its owner would, and
//! nobody else is trusted), the claim code from its screen (the serial port shows the same), its power
//! button; and, in the test flavour only, a root shell. Dropping it pulls the plug.

use std::time::Duration;

use serde_json::Value;
use warden_domain::clock;
use warden_vm::{Forward, Guest, Machine, PowerOn, Shell, quiet};

use crate::agent::free_port;
use crate::console::{Console, items};
use crate::evidence::MachineEvidence;
use crate::front_door::FrontDoor;
use crate::images::{Flavour, Images, PackKind, TINY_FILE, work};
use crate::log::CaseLog;
use crate::places::Places;

/// Name under which the cases serve the tiny model.
pub const TINY: &str = "tiny";

/// A running machine.
pub struct Appliance {
    guest: Guest,
    flavour: Flavour,
    pack: PackKind,
    console: Console,
    shell: Option<Shell>,
    claimed: bool,
    healthy_after: Duration,
    evidence: MachineEvidence,
    log: CaseLog,
}

/// What a case's log says of a power-on that was done once more; a fault of software emulation on a busy host, counted there.
pub const STALLED: &str = "the emulator's timers stand still; powering on once more";

impl Appliance {
    /// Powers a machine on and waits until its agent answers on this host.
    ///
    /// # Errors
    /// A sentence with the end of the serial log.
    pub fn power_on(flavour: Flavour, pack: PackKind, images: &mut Images, places: &Places, log: &CaseLog) -> Result<Self, String> {
        let builder = images.builder(places, log)?;
        let disk = images.disk(flavour, pack, places, log)?;
        let (port, plain) = (free_port()?, free_port()?);
        let mut machine = Machine::from_disk(&disk.path);
        machine.forwards.extend([Forward { host: port, guest: 443 }, Forward { host: plain, guest: 80 }]);
        let run_dir = work(places)?.join(format!("vm-{}-{}", flavour.name(), pack.name()));
        let began = clock::now();
        log.line(format!("powering on {} with the {} pack, host port {port} (encrypted) and {plain}", disk.path.display(), pack.name()));
        let first = ("initrd: slot", quiet(40));
        let started = Guest::start_until(&builder, &machine, &run_dir, true, first, |_| Ok(()), |_| log.line(STALLED));
        let PowerOn { guest, said, .. } = started.map_err(|e| e.to_string())?;
        let door = FrontDoor { encrypted: format!("https://127.0.0.1:{port}"), plain: format!("http://127.0.0.1:{plain}") };
        // Until the authority is known nobody is trusted.
        let console = Console::new(&door.encrypted, log);
        let evidence = MachineEvidence {
            flavour: flavour.name().to_owned(),
            boot_id: format!("power-on {began} on port {port}"),
            hashes: disk.hashes,
            serial_log: Some(places.logs.join(format!("serial-{}-{}.log", flavour.name(), pack.name()))),
        };
        let mut appliance =
            Self { guest, flavour, pack, console, shell: None, claimed: false, healthy_after: Duration::ZERO, evidence, log: log.clone() };
        let healthy = said.map_err(|e| e.to_string()).and_then(|_| {
            appliance.console = door.wait_console(quiet(60), log)?;
            appliance.console.wait_healthy(quiet(60))
        });
        if let Err(cause) = healthy {
            let tail = appliance.guest.serial().tail();
            appliance.keep_serial();
            return Err(format!("{cause}; the serial log ends with: {tail}"));
        }
        appliance.healthy_after = appliance.guest.age();
        log.line(format!(
            "/healthz answers {:.1} s after power-on, {:?} CPU seconds",
            appliance.healthy_after.as_secs_f64(),
            appliance.guest.cpu_seconds()
        ));
        Ok(appliance)
    }

    /// What it was booted from.
    #[must_use]
    pub const fn kind(&self) -> (Flavour, PackKind) {
        (self.flavour, self.pack)
    }

    /// From power-on to the first answer of `/healthz` on this host.
    #[must_use]
    pub const fn healthy_after(&self) -> Duration {
        self.healthy_after
    }

    /// For the evidence file.
    #[must_use]
    pub const fn evidence(&self) -> &MachineEvidence {
        &self.evidence
    }

    /// Lets a new case's log have what follows.
    pub fn log_to(&mut self, log: &CaseLog) {
        self.log = log.clone();
        self.console = self.console.logging_to(log);
    }

    /// The owner's browser: signed in once the box is claimed.
    #[must_use]
    pub const fn console(&self) -> &Console {
        &self.console
    }

    /// The guest, for its power button and CPU time.
    pub const fn guest(&mut self) -> &mut Guest {
        &mut self.guest
    }

    /// Everything on the serial port so far.
    #[must_use]
    pub fn serial_text(&self) -> String {
        self.guest.serial().text()
    }

    /// The claim code the screen shows last; waits for the first one.
    ///
    /// # Errors
    /// A sentence with the end of the serial log.
    pub fn claim_code(&mut self) -> Result<String, String> {
        self.guest.wait(r"Claim code: ([A-Z0-9]{4}-[A-Z0-9]{4})", quiet(20)).map_err(|e| e.to_string())?;
        last_code(&self.guest.serial().text()).ok_or_else(|| "the screen shows no whole claim code".to_owned())
    }

    /// Waits until the screen shows another code than `old`.
    ///
    /// # Errors
    /// A sentence when it keeps the old one.
    pub fn changed_code(&self, old: &str) -> Result<String, String> {
        let until = std::time::Instant::now() + quiet(6);
        loop {
            match last_code(&self.guest.serial().text()) {
                Some(code) if code != old => return Ok(code),
                _ if std::time::Instant::now() >= until => return Err("the screen still shows the old claim code".to_owned()),
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// Takes over the session of whoever claimed the box.
    pub fn sign_in_as(&mut self, owner: &Console) {
        self.console = owner.logging_to(&self.log);
        self.claimed = true;
    }

    /// Claims the box unless that was done before.
    ///
    /// # Errors
    /// A sentence when the claim is refused.
    pub fn ensure_claimed(&mut self) -> Result<(), String> {
        if !self.claimed {
            let code = self.claim_code()?;
            self.console.claim(&code)?;
            self.claimed = true;
        }
        Ok(())
    }

    /// The tiny model's id, registered on first use.
    ///
    /// # Errors
    /// A sentence when it cannot be registered.
    pub fn ensure_registered(&mut self, name: &str) -> Result<String, String> {
        self.ensure_claimed()?;
        let listed = self.console.expect("GET", "/api/models", None, &[200])?.json();
        let known = items(&listed).unwrap_or_default().into_iter().find(|m| m["served_model_name"] == name);
        match known.and_then(|m| m["id"].as_str().map(str::to_owned)) {
            Some(id) => Ok(id),
            None => self.console.register(TINY_FILE, name),
        }
    }

    /// The tiny model running under a name; returns its id and document.
    ///
    /// # Errors
    /// A sentence when it does not come up.
    pub fn ensure_serving(&mut self, name: &str) -> Result<(String, Value), String> {
        let id = self.ensure_registered(name)?;
        let model = self.console.model(&id)?;
        if crate::console::state_word(&model) == "running" {
            return Ok((id, model));
        }
        self.console.load(&id)?;
        let model = self.console.wait_state(&id, &["running"], quiet(40))?;
        Ok((id, model))
    }

    /// Runs a line of shell as root in the guest (test flavour) and demands exit code 0.
    ///
    /// # Errors
    /// A sentence with what it said.
    pub fn root_ok(&mut self, line: &str) -> Result<String, String> {
        let (status, output) = self.root(line, quiet(12))?;
        if status == 0 { Ok(output) } else { Err(format!("in the guest `{line}` ended with {status}: {output}")) }
    }

    /// Runs a line of shell as root in the guest (test flavour); returns exit status and output.
    ///
    /// # Errors
    /// A sentence when no shell answers.
    pub fn root(&mut self, line: &str, limit: Duration) -> Result<(i32, String), String> {
        if self.shell.is_none() {
            let mut shell = self.guest.shell(quiet(20)).map_err(|e| e.to_string())?;
            let boot = shell.run("cat /proc/sys/kernel/random/boot_id", quiet(5)).map_err(|e| e.to_string())?;
            if boot.status == 0 {
                boot.output.trim().clone_into(&mut self.evidence.boot_id);
            }
            self.shell = Some(shell);
        }
        let Some(shell) = &mut self.shell else { return Err("no shell".to_owned()) };
        let reply = shell.run(line, limit).map_err(|e| e.to_string())?;
        self.log.line(format!("guest# {line}\n-> {} {}", reply.status, reply.output));
        Ok((reply.status, reply.output))
    }

    /// Copies the serial log beside the other logs, where the evidence points.
    fn keep_serial(&self) {
        if let Some(to) = &self.evidence.serial_log {
            let _the_run_folder_still_has_it = std::fs::copy(self.guest.serial().path(), to);
        }
    }
}

impl Drop for Appliance {
    fn drop(&mut self) {
        self.keep_serial();
    }
}

/// The last whole claim code in a text.
fn last_code(text: &str) -> Option<String> {
    text.rmatch_indices("Claim code: ").find_map(|(at, lead)| {
        let code: String = text[at + lead.len()..].chars().take(9).collect();
        let whole = code.len() == 9 && code.as_bytes()[4] == b'-' && code.bytes().all(|b| b == b'-' || b.is_ascii_uppercase() || b.is_ascii_digit());
        whole.then_some(code)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_code_counts_when_the_screen_changed() {
        assert_eq!(last_code("x\r\nClaim code: ABCD-EFGH\r\ny\r\nClaim code: JKLM-2345\r\n").as_deref(), Some("JKLM-2345"));
        assert_eq!(last_code("Claim code: ABCD-EFGH\r\nClaim code: JK").as_deref(), Some("ABCD-EFGH"));
        assert_eq!(last_code("nothing"), None);
    }
}
