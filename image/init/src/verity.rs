//! Opens a slot as a verified device. The hash comes from the signed command line; a block that does not match it stops the machine.

use std::process::{Command, Stdio};

use crate::cmdline::Cmdline;
use crate::fatal::Fatal;

/// The verified root's device.
pub const ROOT: &str = "/dev/mapper/root";

/// Opens `device` as [`ROOT`].
pub fn open(device: &str, cmdline: &Cmdline) -> Result<(), Fatal> {
    let offset = format!("--hash-offset={}", cmdline.hashoffset);
    setup(device, &["open", &offset, "--panic-on-corruption", device, "root", device, &cmdline.roothash])
}

/// Reads the whole of `device` and compares it with its hash.
pub fn check(device: &str, cmdline: &Cmdline) -> Result<(), Fatal> {
    let offset = format!("--hash-offset={}", cmdline.hashoffset);
    setup(device, &["verify", &offset, device, device, &cmdline.roothash])
}

fn setup(device: &str, words: &[&str]) -> Result<(), Fatal> {
    let run = Command::new("/bin/veritysetup")
        .args(words)
        .env_clear()
        // There is no udev yet that could answer; the program makes the node itself.
        .env("DM_DISABLE_UDEV", "1")
        .stdin(Stdio::null())
        .output();
    let failed = |reason: String| Fatal::Verity { device: device.to_owned(), reason };
    let output = run.map_err(|error| failed(format!("/bin/veritysetup: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("{} ({})", said.lines().last().unwrap_or("no word"), output.status)))
}
