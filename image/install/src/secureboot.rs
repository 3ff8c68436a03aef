//! How the firmware stands with Secure Boot, and what can be done about it from here. Variables come in, a posture and a sentence go out.

use std::path::Path;

const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Where the kernel shows the firmware's variables.
pub const VARIABLES: &str = "/sys/firmware/efi/efivars";

/// How the firmware stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posture {
    /// No keys of its own yet: it takes those it is given first.
    SetupMode,
    /// On; since this stick started, its keys are among the firmware's.
    Ours,
    /// Has keys and does not check with them.
    Off,
    /// It does not say.
    Unknown,
}

/// Reads the posture from the folder of variables.
#[must_use]
pub fn read(folder: &Path) -> Posture {
    let flag = |name: &str| std::fs::read(folder.join(format!("{name}-{GLOBAL}"))).ok().and_then(|bytes| bytes.get(4).copied());
    posture(flag("SetupMode"), flag("SecureBoot"))
}

/// The posture of two variables' values.
#[must_use]
pub fn posture(setup_mode: Option<u8>, secure_boot: Option<u8>) -> Posture {
    match (setup_mode, secure_boot) {
        (Some(1), _) => Posture::SetupMode,
        (_, Some(1)) => Posture::Ours,
        (Some(0), _) | (_, Some(0)) => Posture::Off,
        _ => Posture::Unknown,
    }
}

impl Posture {
    /// One sentence for the screen, with the way out.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::SetupMode => "Secure Boot is in setup mode: the firmware can take the keys of LM Warden at the first start from the new disk.",
            Self::Ours => "Secure Boot is on and knows the keys of LM Warden.",
            Self::Off => "Secure Boot is off; to use it, put the firmware into setup mode (clear its keys) and start this stick again.",
            Self::Unknown => "The firmware does not tell how it stands with Secure Boot; LM Warden starts without it.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_offered_in_setup_mode_only() {
        assert_eq!(posture(Some(1), Some(0)), Posture::SetupMode);
        assert_eq!(posture(Some(0), Some(1)), Posture::Ours);
        assert_eq!(posture(Some(0), Some(0)), Posture::Off);
        assert_eq!(posture(None, None), Posture::Unknown);
    }

    #[test]
    fn the_value_stands_behind_four_bytes_of_attributes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(format!("SetupMode-{GLOBAL}")), [6, 0, 0, 0, 1]).unwrap();
        assert_eq!(read(folder.path()), Posture::SetupMode);
    }
}
