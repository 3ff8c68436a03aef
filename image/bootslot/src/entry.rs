//! One loader entry: the file name carries slot and tries, the text carries the generation. Names and texts go in and come out; no
//! file is touched. The boot loader itself renames `a+3.conf` to `a+2-1.conf` at each start, until a healthy system drops the counter.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Starts a freshly installed slot gets before the other one takes over.
pub const TRIES: u32 = 3;

/// One of the two system slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Slot {
    /// The first slot.
    A,
    /// The second slot.
    B,
}

impl Slot {
    /// Both slots in their order.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The slot's name in entry names, in RAUC and on the kernel command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }

    /// The slot that is not this one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// The slot of that name.
    ///
    /// # Errors
    /// [`NoSuchSlot`] for anything but `a` and `b`.
    pub fn parse(name: &str) -> Result<Self, NoSuchSlot> {
        Self::BOTH.into_iter().find(|slot| slot.name() == name).ok_or_else(|| NoSuchSlot(name.to_owned()))
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The name is not one of a system slot.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("there is no slot {0:?}; slots are a and b")]
pub struct NoSuchSlot(pub String);

/// How an entry stands with the loader's counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tries {
    /// No counter in the name: the slot was judged healthy.
    Confirmed,
    /// Starts that are left.
    Left(u32),
}

impl Tries {
    /// Whether the loader may still start this entry by choice.
    #[must_use]
    pub fn usable(self) -> bool {
        self != Self::Left(0)
    }
}

/// What is known of one entry file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The slot it starts.
    pub slot: Slot,
    /// Its counter.
    pub tries: Tries,
    /// The greater one is newer and is started first.
    pub generation: u32,
    /// The file's name in the entries folder.
    pub file: String,
}

/// Reads slot and tries out of a file name; nothing for files of other owners.
#[must_use]
pub fn parse_name(file: &str) -> Option<(Slot, Tries)> {
    let stem = file.strip_suffix(".conf")?;
    let Some((slot, counter)) = stem.split_once('+') else {
        return Some((Slot::parse(stem).ok()?, Tries::Confirmed));
    };
    let (left, done) = counter.split_once('-').map_or((counter, None), |(left, done)| (left, Some(done)));
    let number = |text: &str| -> Option<u32> { if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None } };
    if let Some(done) = done {
        number(done)?;
    }
    Some((Slot::parse(slot).ok()?, Tries::Left(number(left)?)))
}

/// The generation in an entry's text; 0 when it has none, so that a damaged file never outranks a sound one.
#[must_use]
pub fn parse_generation(text: &str) -> u32 {
    text.lines().find_map(|line| line.strip_prefix("version ")?.trim().parse().ok()).unwrap_or(0)
}

/// The file name for a slot with those tries.
#[must_use]
pub fn name(slot: Slot, tries: Tries) -> String {
    match tries {
        Tries::Confirmed => format!("{slot}.conf"),
        Tries::Left(left) => format!("{slot}+{left}.conf"),
    }
}

/// The text of an entry. The version is padded because the loader compares it as text with numbers in it.
#[must_use]
pub fn render(slot: Slot, generation: u32) -> String {
    format!("title LM Warden (slot {slot})\nsort-key warden\nversion {generation:06}\nefi /EFI/warden/{slot}.efi\n")
}

/// The loader's settings on every disk: no menu, no editor, only our entries.
pub const LOADER_SETTINGS: &str = "timeout 0\neditor no\nauto-entries no\nauto-firmware no\n";

/// File names and texts of the entries of a fresh disk: the first slot is newer and on trial, the second one is trusted.
#[must_use]
pub fn fresh() -> [(String, String); 2] {
    [(name(Slot::A, Tries::Left(TRIES)), render(Slot::A, 2)), (name(Slot::B, Tries::Confirmed), render(Slot::B, 1))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_the_loader_makes_is_understood() {
        assert_eq!(parse_name("a.conf"), Some((Slot::A, Tries::Confirmed)));
        assert_eq!(parse_name("b+3.conf"), Some((Slot::B, Tries::Left(3))));
        assert_eq!(parse_name("a+2-1.conf"), Some((Slot::A, Tries::Left(2))));
        assert_eq!(parse_name("a+0-3.conf"), Some((Slot::A, Tries::Left(0))));
    }

    #[test]
    fn files_of_other_owners_are_left_alone() {
        for file in ["c.conf", "a.conf.tmp", "a+.conf", "a+x.conf", "a+1-.conf-", "a+1-x.conf", "a+-1.conf", ".new", "memtest.conf", "a++1.conf"] {
            assert_eq!(parse_name(file), None, "{file}");
        }
    }

    #[test]
    fn the_generation_survives_the_way_through_the_file() {
        assert_eq!(parse_generation(&render(Slot::B, 42)), 42);
        assert_eq!(parse_generation(&render(Slot::B, 8)), 8);
        assert_eq!(parse_generation("title x\n"), 0);
        assert_eq!(parse_generation("version x\n"), 0);
    }

    #[test]
    fn a_used_up_slot_is_not_usable() {
        assert!(!Tries::Left(0).usable());
        assert!(Tries::Left(1).usable());
        assert!(Tries::Confirmed.usable());
    }
}
