//! Keys of a developer, for image builds that make them on the way.

use std::path::Path;

use warden_domain::clock;
use warden_trust::{Role, Root};

use crate::fault::Done;
use crate::files;
use crate::keys::{self, Plan, Share};

/// How long the first root of a developer is valid, in days.
const DAYS: i64 = 1825;

/// Makes a folder of unsealed development keys with the usual numbers and thresholds, unless it holds keys already.
///
/// # Errors
/// The folder cannot be written, or the system gives no random bytes.
pub fn development_keys(dir: &Path, compatible: &str) -> Done<()> {
    if keys::root_path(dir, 1).exists() {
        return Ok(());
    }
    let share = |role, keys, threshold| Share { role, keys, threshold };
    let plan = Plan {
        compatible,
        development: true,
        shares: [share(Role::Root, 3, 2), share(Role::Release, 2, 1), share(Role::Timestamp, 1, 1)],
        passphrase: None,
        at: clock::now(),
        days: DAYS,
    };
    keys::init(dir, &plan, keys::seeds(None)).map(drop)
}

/// The first root file of a folder: its bytes, as they go into an image, and what it says.
///
/// # Errors
/// There is none, or it contradicts itself.
pub fn root_of(dir: &Path) -> Done<(Vec<u8>, Root)> {
    let bytes = files::read(&keys::root_path(dir, 1), warden_trust::ROOT_MAX)?;
    let root = Root::read(&bytes)?.0;
    Ok((bytes, root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_developer_are_made_once_and_say_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("release");
        development_keys(&dir, "lm-warden-x86_64").unwrap();
        let (bytes, root) = root_of(&dir).unwrap();
        assert!(root.development);
        assert_eq!(root.compatible, "lm-warden-x86_64");
        development_keys(&dir, "lm-warden-x86_64").unwrap();
        assert_eq!(root_of(&dir).unwrap().0, bytes);
    }
}
