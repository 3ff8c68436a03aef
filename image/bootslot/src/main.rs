//! The program RAUC calls to ask for and change the boot order: `get-primary`, `set-primary SLOT`, `get-state SLOT`,
//! `set-state SLOT good|bad`, `get-current`. Under the name `rauc-pre-install` it is RAUC's handler before an install: it gives the target
//! slot up and puts the bundle's kernel on the EFI system partition. Judging the running slot good also closes the initrd's own count of
//! starts that were not judged. Answers are one word on standard output; refusals one sentence on standard error.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use thiserror::Error;
use warden_bootslot::choice;
use warden_bootslot::entry::{NoSuchSlot, Slot};
use warden_bootslot::folder::{Entries, FolderError};
use warden_bootslot::handler::{self, Refused};
use warden_bootslot::kernel::{self, KernelError};

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
    #[error("{0}")]
    Handler(#[from] Refused),
    #[error("{0}")]
    Kernel(#[from] KernelError),
    #[error("usage: warden-bootslot get-primary | set-primary SLOT | get-state SLOT | set-state SLOT good|bad | get-current")]
    Usage,
}

fn main() -> ExitCode {
    let mut words = std::env::args();
    let as_handler = words.next().is_some_and(|name| Path::new(&name).file_name().is_some_and(|name| name == handler::NAME));
    let words: Vec<String> = words.collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match if as_handler { pre_install().map(|()| String::new()) } else { answer(&words) } {
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
            judge(&entries, slot, *state == "good")?;
            Ok(String::new())
        }
        ["get-current"] => Ok(current()?.to_string()),
        _ => Err(Failure::Usage),
    }
}

fn current() -> Result<Slot, Failure> {
    let line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let word = line.split_whitespace().find_map(|word| word.strip_prefix("rauc.slot="));
    Ok(Slot::parse(word.ok_or(Failure::NoCurrent)?)?)
}

/// Writes a judgement down. A slot that stands as judged is left as it is: the partition is written rarely. When the running slot is judged
/// good, its count of starts in the initrd ends too.
fn judge(entries: &Entries, slot: Slot, good: bool) -> Result<(), Failure> {
    entries.tidy()?;
    let found = entries.list()?;
    let write = choice::set_state(&found, slot, good);
    if choice::entry_of(&found, slot).is_none_or(|entry| entry.tries != write.tries) {
        entries.apply(write)?;
    }
    if good && current().is_ok_and(|running| running == slot) {
        let state = std::env::var_os("WARDEN_STATE").map_or_else(|| PathBuf::from("/state"), PathBuf::from);
        return end_count(&state.join("boot/unconfirmed"));
    }
    Ok(())
}

fn end_count(count: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::Count(count.to_owned(), error);
    match std::fs::remove_file(count) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(()) => warden_durable::sync_folder(count.parent().unwrap_or(Path::new("/"))).map_err(failed),
    }
}

/// Before RAUC writes a slot: nothing may start it any more, then its new kernel is put in place.
fn pre_install() -> Result<(), Failure> {
    let esp = std::env::var_os("WARDEN_ESP").map_or_else(|| PathBuf::from("/efi"), PathBuf::from);
    let wish = handler::wish(|name| std::env::var(name).ok(), current().ok())?;
    judge(&Entries::on(&esp), wish.slot, false)?;
    kernel::place(&wish.bundle.join(handler::KERNEL), &esp, wish.slot)?;
    println!("slot {} is given up until the install is complete; its new kernel is in place", wish.slot);
    Ok(())
}
