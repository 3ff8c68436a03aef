//! Two small duties around the disk manager, both run as root.
//!
//! As `boot-rule` (a oneshot unit at each start): finds the boot disk and writes the polkit rule that keeps it out of reach.
//! Under a name such as `mkfs.ext4` (found first by the disk manager, see its unit's PATH): lets through exactly the format commands that
//! model storage needs. Without that, whoever may format a blank disk could hand the format program options of his own, and those write
//! to other disks and files.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

mod boot_disk;
mod mkfs;
mod rule;

/// Where polkit looks for rules of this start, before those of the image.
const RULE: &str = "/run/polkit-1/rules.d/05-warden-boot-disk.rules";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os().map(|word| String::from_utf8_lossy(word.as_bytes()).into_owned()).collect();
    let name = words.first().map(|word| word.rsplit('/').next().unwrap_or_default().to_owned()).unwrap_or_default();
    let outcome = if name.starts_with("mk") {
        format(&name, words.get(1..).unwrap_or_default())
    } else if words.get(1).is_some_and(|verb| verb == "boot-rule") && words.len() == 2 {
        boot_rule()
    } else {
        Err("usage: warden-diskguard boot-rule (it is started by its unit)".to_owned())
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("{sentence}");
            ExitCode::FAILURE
        }
    }
}

fn boot_rule() -> Result<(), String> {
    let devices = boot_disk::devices(Path::new("/sys"), Path::new("/state")).map_err(|error| error.to_string())?;
    rule::write(Path::new(RULE), &devices)
        .map_err(|error| format!("the rule for the boot disk cannot be written to {RULE}: {error}; storage stays refused as a whole"))?;
    println!("storage actions on these are refused: {}", devices.iter().map(String::as_str).collect::<Vec<_>>().join(" "));
    Ok(())
}

fn format(name: &str, args: &[String]) -> Result<(), String> {
    let command = mkfs::checked(name, args).map_err(|refusal| refusal.to_string())?;
    let words: Result<Vec<_>, _> = command.iter().map(|word| std::ffi::CString::new(word.as_str())).collect();
    let words = words.map_err(|_| "format: an argument holds a NUL byte".to_owned())?;
    let Some(program) = words.first() else { return Err("format: no program".to_owned()) };
    match nix::unistd::execv(program, &words) {
        Ok(never) => match never {},
        Err(cause) => Err(format!("format: {} cannot be started: {cause}", program.to_string_lossy())),
    }
}
