//! What the initrd and the firmware left to be read: why the other slot was given up, whether the firmware checks what it starts.

use std::{io, path::Path};

/// Where the initrd writes down why it gave up a slot.
const FALLBACK: &str = "/state/boot/fallback.json";
/// The firmware's own variable: four bytes of attributes, one byte of value.
const SECURE_BOOT: &str = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// A fallback that was written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fallback {
    /// The initrd's sentence.
    pub(crate) sentence: String,
    /// Tells one fallback from the next: when it was written, in seconds since the epoch.
    pub(crate) written: i64,
}

/// The last fallback, if there was one.
pub(crate) fn fallback() -> Result<Option<Fallback>, io::Error> {
    fallback_at(Path::new(FALLBACK))
}

fn fallback_at(path: &Path) -> Result<Option<Fallback>, io::Error> {
    use std::os::unix::fs::MetadataExt;
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let written = std::fs::metadata(path)?.mtime();
    let document: serde_json::Value = serde_json::from_str(&text).map_err(io::Error::from)?;
    let sentence: String = document["reason"].as_str().unwrap_or_default().chars().filter(|c| !c.is_control()).take(400).collect();
    Ok(Some(Fallback { sentence, written }))
}

/// Whether Secure Boot is on; `None` when this machine has no such variable to read.
pub(crate) fn secure_boot() -> Result<Option<bool>, io::Error> {
    match std::fs::read(SECURE_BOOT) {
        Ok(bytes) => Ok(on(&bytes)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
    }
}

fn on(variable: &[u8]) -> Option<bool> {
    match variable {
        [_, _, _, _, value] => Some(*value == 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_of_another_shape_is_unknown_and_not_off() {
        assert_eq!(on(&[6, 0, 0, 0, 1]), Some(true));
        assert_eq!(on(&[6, 0, 0, 0, 0]), Some(false));
        assert_eq!(on(&[1]), None);
    }

    #[test]
    fn the_reason_of_a_fallback_is_what_the_initrd_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fallback.json");
        assert_eq!(fallback_at(&path).unwrap(), None);
        std::fs::write(&path, r#"{"from_slot":"b","reason":"slot b was given up\u001b[2J","at_boot":"x"}"#).unwrap();
        assert_eq!(fallback_at(&path).unwrap().unwrap().sentence, "slot b was given up[2J");
    }
}
