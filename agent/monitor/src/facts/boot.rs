//! What the firmware left to be read: whether it checks what it starts.

use std::{io, path::Path};

/// The firmware's own variable: four bytes of attributes, one byte of value.
pub(crate) const SECURE_BOOT: &str = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// Whether Secure Boot is on by that variable; `None` when this machine has no such one to read.
pub(crate) fn secure_boot(variable: &Path) -> Result<Option<bool>, io::Error> {
    match std::fs::read(variable) {
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
}
