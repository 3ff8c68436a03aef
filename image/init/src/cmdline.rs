//! What the kernel command line may say. The loader stub appends text that a firmware or hypervisor hands over, even under Secure Boot,
//! so a signed command line alone proves nothing: the five words that decide what is started must each be there exactly once, and every
//! other word must be on a list built in here. Text in, decision out. The test flavour's initrd accepts further words, never twice the five.

use thiserror::Error;
use warden_bootslot::entry::Slot;

/// Words that are accepted as they stand.
const ALLOWED: &[&str] = &[
    "ro",
    "quiet",
    "debug",
    "panic=5",
    "panic_on_oops=1",
    "oops=panic",
    "consoleblank=0",
    "console=tty0",
    "console=tty1",
    "console=ttyS0",
    "console=ttyS0,115200",
    "console=ttyS0,115200n8",
    "loglevel=1",
    "loglevel=2",
    "loglevel=3",
    "loglevel=4",
    "loglevel=5",
    "loglevel=6",
    "loglevel=7",
    "lockdown=integrity",
    "no_timer_check",
    "module.sig_enforce=1",
    "mitigations=auto",
    "random.trust_cpu=on",
    "tsc=reliable",
    "systemd.gpt_auto=0",
    "systemd.import_credentials=no",
    "systemd.show_status=0",
    "systemd.show_status=1",
    "systemd.show_status=no",
    "systemd.show_status=auto",
    "systemd.show_status=yes",
];

/// What this start is told to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cmdline {
    /// Root hash of the system slot: 64 hexadecimal digits.
    pub roothash: String,
    /// Where the hash tree begins in the slot, in bytes.
    pub hashoffset: u64,
    /// What is started.
    pub start: Start,
}

/// What is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// A slot of an installed disk.
    Slot(Slot),
    /// The installer of a stick.
    Installer,
}

/// Why a command line is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// One of the five words is not there.
    #[error("the kernel command line lacks {0}=")]
    Missing(&'static str),
    /// One of the five words is there more than once.
    #[error("the kernel command line has {0}= more than once; text was added to the signed one")]
    Twice(&'static str),
    /// One of the five words has a value that is not of its form.
    #[error("the kernel command line has a bad value for {0}=")]
    Value(&'static str),
    /// A stick has no slots.
    #[error("the kernel command line names a slot (rauc.slot=) for an installer stick")]
    Slot,
    /// `root=` and `rauc.slot=` name different slots.
    #[error("root= and rauc.slot= on the kernel command line name different slots")]
    Disagree,
    /// A word nobody signed for.
    #[error("the kernel command line has the unknown word {0:?}; remove it from the firmware's or hypervisor's settings")]
    Unknown(String),
}

const DECIDING: [&str; 5] = ["roothash", "hashoffset", "root", "rauc.slot", "warden.mode"];

/// Reads a kernel command line. `test_flavour` lets further words pass.
///
/// # Errors
/// The first rule that is broken.
pub fn parse(line: &str, test_flavour: bool) -> Result<Cmdline, Refusal> {
    let mut values: [Option<&str>; 5] = [None; 5];
    for word in line.split_ascii_whitespace() {
        // The kernel takes quotes off and treats '-' and '_' alike in places; a word with such disguise is never one of ours.
        let deciding = word.split_once('=').and_then(|(key, value)| Some((DECIDING.iter().position(|name| *name == key)?, value)));
        match deciding {
            Some((place, value)) => {
                if values[place].replace(value).is_some() {
                    return Err(Refusal::Twice(DECIDING[place]));
                }
            }
            None if ALLOWED.contains(&word) || test_flavour => {}
            None => return Err(Refusal::Unknown(word.chars().filter(|letter| !letter.is_control()).take(64).collect())),
        }
    }
    let of = |place: usize| values[place].ok_or(Refusal::Missing(DECIDING[place]));
    let (roothash, hashoffset, root, mode) = (of(0)?, of(1)?, of(2)?, of(4)?);

    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if roothash.len() != 64 || !roothash.bytes().all(hex) {
        return Err(Refusal::Value("roothash"));
    }
    let digits = !hashoffset.is_empty() && hashoffset.bytes().all(|byte| byte.is_ascii_digit());
    let hashoffset: u64 = hashoffset.parse().ok().filter(|_| digits).ok_or(Refusal::Value("hashoffset"))?;
    let start = match mode {
        "appliance" => {
            let slot = Slot::parse(of(3)?).map_err(|_| Refusal::Value("rauc.slot"))?;
            let named = root.strip_prefix("PARTLABEL=warden-root-").and_then(|name| Slot::parse(name).ok());
            if named.ok_or(Refusal::Value("root"))? != slot {
                return Err(Refusal::Disagree);
            }
            Start::Slot(slot)
        }
        "install" if values[3].is_some() => return Err(Refusal::Slot),
        "install" if root != "PARTLABEL=stick-root" => return Err(Refusal::Value("root")),
        "install" => Start::Installer,
        _ => return Err(Refusal::Value("warden.mode")),
    };
    Ok(Cmdline { roothash: roothash.to_owned(), hashoffset, start })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(more: &str) -> String {
        let hash = "0123456789abcdef".repeat(4);
        format!("quiet panic=5 roothash={hash} hashoffset=85299200 warden.mode=appliance root=PARTLABEL=warden-root-a rauc.slot=a {more}\n")
    }

    #[test]
    fn the_signed_command_line_starts_its_slot() {
        let cmdline = parse(&line("console=ttyS0"), false).unwrap();
        assert_eq!((cmdline.start, cmdline.hashoffset), (Start::Slot(Slot::A), 85_299_200));
    }

    #[test]
    fn a_stick_starts_the_installer_and_nothing_of_a_disk() {
        let stick =
            line("").replace("warden.mode=appliance root=PARTLABEL=warden-root-a rauc.slot=a", "warden.mode=install root=PARTLABEL=stick-root");
        assert_eq!(parse(&stick, false).unwrap().start, Start::Installer);
        assert_eq!(parse(&format!("{stick} rauc.slot=a"), false), Err(Refusal::Slot));
        assert_eq!(parse(&stick.replace("stick-root", "warden-root-a"), false), Err(Refusal::Value("root")));
        assert!(parse(&format!("{stick} warden.mode=appliance"), false).is_err());
    }

    #[test]
    fn an_appended_root_hash_does_not_start_another_root() {
        for word in ["roothash=00", "root=PARTLABEL=warden-root-a", "rauc.slot=a", "hashoffset=1", "warden.mode=appliance"] {
            assert!(matches!(parse(&line(word), false), Err(Refusal::Twice(_))), "{word}");
            assert!(matches!(parse(&line(word), true), Err(Refusal::Twice(_))), "{word} in the test flavour");
        }
    }

    #[test]
    fn a_hypervisor_cannot_open_a_shell_by_an_added_word() {
        for word in ["systemd.debug_shell=ttyS1", "init=/bin/sh", "systemd.unit=rescue.target", "rw", "\"ro\"", "quiet=1"] {
            assert!(matches!(parse(&line(word), false), Err(Refusal::Unknown(_))), "{word}");
        }
        assert!(parse(&line("systemd.debug_shell=ttyS1"), true).is_ok());
    }

    #[test]
    fn a_command_line_without_one_of_the_five_is_refused() {
        for (place, name) in DECIDING.iter().enumerate() {
            let short: Vec<String> = line("").split_whitespace().filter(|word| !word.starts_with(&format!("{name}="))).map(str::to_owned).collect();
            assert_eq!(parse(&short.join(" "), false), Err(Refusal::Missing(DECIDING[place])));
        }
    }

    #[test]
    fn odd_values_are_refused() {
        for (from, to, name) in [
            ("hashoffset=85299200", "hashoffset=+1", "hashoffset"),
            ("hashoffset=85299200", "hashoffset=99999999999999999999999", "hashoffset"),
            ("rauc.slot=a", "rauc.slot=c", "rauc.slot"),
            ("root=PARTLABEL=warden-root-a", "root=/dev/vdb2", "root"),
            ("warden.mode=appliance", "warden.mode=installer", "warden.mode"),
            ("roothash=0", "roothash=g", "roothash"),
        ] {
            assert_eq!(parse(&line("").replace(from, to), false), Err(Refusal::Value(name)), "{to}");
        }
        assert_eq!(parse(&line("").replace("rauc.slot=a", "rauc.slot=b"), false), Err(Refusal::Disagree));
    }
}
