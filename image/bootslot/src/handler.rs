//! What RAUC tells its handlers by environment variables, and what the one before an install makes of it. Names and values in, a wish out.

use std::path::PathBuf;

use thiserror::Error;

use crate::entry::Slot;

/// The name under which this program is that handler.
pub const NAME: &str = "rauc-pre-install";
/// The kernel image in a bundle, beside the root image.
pub const KERNEL: &str = "uki.efi";

/// One kernel to be put in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The slot that is about to be written.
    pub slot: Slot,
    /// Where the bundle's files can be read; RAUC has verified them.
    pub bundle: PathBuf,
}

/// What RAUC said makes no sense here.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Refused {
    /// A variable is not there.
    #[error("the update service did not say {0}; this program is its handler and is not to be called by hand")]
    Missing(&'static str),
    /// Not exactly one slot is to be written.
    #[error("the update service wants to write {0} system slots at once; a bundle for this product has one root image")]
    Targets(usize),
    /// The slot has another name than ours.
    #[error("the update service wants to write the slot {0:?}; slots are a and b")]
    Unknown(String),
    /// The running slot would be written.
    #[error("slot {0} is running and is never written; start the other slot first")]
    Running(Slot),
}

/// Reads the variables. `running` is the slot this system was started from.
///
/// # Errors
/// Anything but one target slot, which must not be the running one.
pub fn wish(variable: impl Fn(&str) -> Option<String>, running: Option<Slot>) -> Result<Wish, Refused> {
    let bundle = variable("RAUC_BUNDLE_MOUNT_POINT").filter(|path| path.starts_with('/'));
    let bundle = PathBuf::from(bundle.ok_or(Refused::Missing("RAUC_BUNDLE_MOUNT_POINT"))?);
    let targets = variable("RAUC_TARGET_SLOTS").ok_or(Refused::Missing("RAUC_TARGET_SLOTS"))?;
    let names: Vec<String> = targets
        .split_ascii_whitespace()
        .filter_map(|number| variable(&format!("RAUC_SLOT_BOOTNAME_{number}")))
        .filter(|name| !name.is_empty())
        .collect();
    let [name] = names.as_slice() else { return Err(Refused::Targets(names.len())) };
    let slot = Slot::parse(name).map_err(|_| Refused::Unknown(name.clone()))?;
    if running == Some(slot) {
        return Err(Refused::Running(slot));
    }
    Ok(Wish { slot, bundle })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(more: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        let mut said = vec![
            ("RAUC_BUNDLE_MOUNT_POINT", "/run/rauc/bundle"),
            ("RAUC_TARGET_SLOTS", "2 "),
            ("RAUC_SLOT_BOOTNAME_1", "a"),
            ("RAUC_SLOT_BOOTNAME_2", "b"),
        ];
        said.splice(0..0, more.iter().copied());
        let said: Vec<(String, String)> = said.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        move |name| said.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn the_slot_that_does_not_run_gets_the_kernel_of_the_bundle() {
        assert_eq!(wish(told(&[]), Some(Slot::A)), Ok(Wish { slot: Slot::B, bundle: PathBuf::from("/run/rauc/bundle") }));
    }

    #[test]
    fn the_running_slot_is_never_given_up() {
        assert_eq!(wish(told(&[]), Some(Slot::B)), Err(Refused::Running(Slot::B)));
    }

    #[test]
    fn a_call_that_does_not_name_one_slot_is_refused() {
        assert_eq!(wish(told(&[("RAUC_TARGET_SLOTS", "1 2")]), Some(Slot::A)), Err(Refused::Targets(2)));
        assert_eq!(wish(told(&[("RAUC_TARGET_SLOTS", "")]), Some(Slot::A)), Err(Refused::Targets(0)));
        assert_eq!(wish(told(&[("RAUC_SLOT_BOOTNAME_2", "c")]), Some(Slot::A)), Err(Refused::Unknown("c".to_owned())));
        assert_eq!(wish(told(&[("RAUC_BUNDLE_MOUNT_POINT", "bundle")]), Some(Slot::A)), Err(Refused::Missing("RAUC_BUNDLE_MOUNT_POINT")));
        assert_eq!(wish(|_| None, None), Err(Refused::Missing("RAUC_BUNDLE_MOUNT_POINT")));
    }
}
