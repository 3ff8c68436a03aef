//! The program RAUC calls to ask for and change the boot order: `get-primary`, `set-primary SLOT`, `get-state SLOT`,
//! `set-state SLOT good|bad`, `get-current`. Beside these, `tidy` clears what a cut has left and `confirm` closes the initrd's count of
//! starts that were not judged healthy. Answers are one word on standard output; refusals one sentence on standard error.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use thiserror::Error;
use warden_bootslot::choice;
use warden_bootslot::entry::{NoSuchSlot, Slot};
use warden_bootslot::folder::{Entries, FolderError};

#[derive(Debug, Error)]
enum Failure {
    #[error("{0}")]
    Folder(#[from] FolderError),
    #[error("{0}")]
    Slot(#[from] NoSuchSlot),
    #[error("no slot can be started: every entry has used up its tries; install again or mark one good")]
    NoPrimary,
    #[error("the kernel command line names no slot (rauc.slot=); this system was not started from one")]
    NoCurrent,
    #[error("cannot clear the count of starts in {0}: {1}")]
    Count(PathBuf, std::io::Error),
    #[error("usage: warden-bootslot get-primary | set-primary SLOT | get-state SLOT | set-state SLOT good|bad | get-current | tidy | confirm")]
    Usage,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match answer(&words) {
        Ok(text) => {
            if !text.is_empty() {
                println!("{text}");
            }
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("bootslot: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn answer(words: &[&str]) -> Result<String, Failure> {
    let esp = std::env::var_os("WARDEN_ESP").map_or_else(|| PathBuf::from("/efi"), PathBuf::from);
    let entries = Entries::on(&esp);
    match words {
        ["get-primary"] => choice::primary(&entries.list()?).map(|slot| slot.to_string()).ok_or(Failure::NoPrimary),
        ["set-primary", slot] => {
            let slot = Slot::parse(slot)?;
            entries.apply(choice::set_primary(&entries.list()?, slot))?;
            Ok(String::new())
        }
        ["get-state", slot] => {
            let good = choice::good(&entries.list()?, Slot::parse(slot)?);
            Ok(if good { "good" } else { "bad" }.to_owned())
        }
        ["set-state", slot, state @ ("good" | "bad")] => {
            let slot = Slot::parse(slot)?;
            entries.apply(choice::set_state(&entries.list()?, slot, *state == "good"))?;
            Ok(String::new())
        }
        ["get-current"] => Ok(current()?.to_string()),
        ["tidy"] => entries.tidy().map(|()| String::new()).map_err(Failure::from),
        ["confirm"] => confirm(&entries).map(|()| String::new()),
        _ => Err(Failure::Usage),
    }
}

fn current() -> Result<Slot, Failure> {
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let word = line.split_whitespace().find_map(|word| word.strip_prefix("rauc.slot="));
    Ok(Slot::parse(word.ok_or(Failure::NoCurrent)?)?)
}

/// The running slot has proved itself: its entry loses the counter and the initrd's own count ends.
fn confirm(entries: &Entries) -> Result<(), Failure> {
    let slot = current()?;
    entries.tidy()?;
    let found = entries.list()?;
    let counted = choice::entry_of(&found, slot).is_some_and(|entry| entry.tries != warden_bootslot::entry::Tries::Confirmed);
    if counted {
        entries.apply(choice::set_state(&found, slot, true))?;
    }
    let count = Path::new("/state/boot/unconfirmed");
    match std::fs::remove_file(count) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::Count(count.to_owned(), error)),
        Ok(()) => warden_durable::sync_folder(Path::new("/state/boot")).map_err(|error| Failure::Count(count.to_owned(), error)),
    }
}
