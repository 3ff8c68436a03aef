//! What each scope removes. Every step may run twice: a start that goes on after a power cut does them all again.
//!
//! Links are removed, never followed, and no other file system is entered: what somebody planted or mounted cannot widen a reset. Nor can
//! a tree that is too deep for a path break one off: what lies deeper than [`DEEPEST`] is moved up and removed from there.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a factory reset leaves on the state partition: the list of resets, and what describes the installed system itself.
const STATE_KEEPS: &[&str] = &["reset", "boot", "rauc", "lost+found", "machine-id"];
/// What it always leaves on the data partition: engine packs are signed software of the product, not the owner's.
const DATA_KEEPS: &[&str] = &["packs", "lost+found"];

/// Levels of folders that are gone into at once. Names are at most 255 bytes long, so that such a path still fits into the system's 4096.
const DEEPEST: usize = 12;
/// Folders that were moved up are called so, with a number.
const MOVED: &str = ".swept-";

/// Network profiles, and what the network service remembered about them.
///
/// # Errors
/// A folder or file that cannot be read or removed, with its path.
pub fn network(state: &Path) -> io::Result<()> {
    for folder in ["network", "var/lib/NetworkManager"] {
        clear(&state.join(folder), &[])?;
    }
    Ok(())
}

/// Everything the owner made on the state partition. The machine's id goes last: until then an interrupted reset is this machine's.
///
/// # Errors
/// A folder or file that cannot be read or removed, with its path.
pub fn state(state: &Path) -> io::Result<()> {
    // The folder of the variable files is what /var shows; it stays, its content goes.
    clear(&state.join("var"), &[])?;
    // What is known of withdrawn and older systems protects the next owner, too: a reset must not be the way back to them.
    clear(&state.join("update"), &["trusted.json"])?;
    let keeps: Vec<&str> = STATE_KEEPS.iter().copied().chain(["var", "update"]).collect();
    clear(state, &keeps)?;
    match fs::remove_file(state.join("machine-id")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(named(&state.join("machine-id"), &error)),
        Ok(()) => warden_durable::sync_folder(state),
    }
}

/// What lies on the data partition, with or without the model files.
///
/// # Errors
/// A folder or file that cannot be read or removed, with its path.
pub fn data(data: &Path, keep_models: bool) -> io::Result<()> {
    let keeps: Vec<&str> = DATA_KEEPS.iter().copied().chain(keep_models.then_some("models")).collect();
    clear(data, &keeps)
}

/// Removes what is in a folder but the names in `keeps`. No folder is an empty one.
fn clear(folder: &Path, keeps: &[&str]) -> io::Result<()> {
    let meta = match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| named(folder, &error))?,
    };
    if !meta.is_dir() {
        return fs::remove_file(folder).map_err(|error| named(folder, &error));
    }
    let mut next = 0;
    loop {
        let before = next;
        for item in fs::read_dir(folder).map_err(|error| named(folder, &error))? {
            let item = item.map_err(|error| named(folder, &error))?;
            if keeps.iter().any(|keep| item.file_name() == OsStr::new(keep)) {
                continue;
            }
            remove(&item.path(), meta.dev(), DEEPEST, &mut || free_name(folder, &mut next))?;
        }
        // What was moved up is less deep by so many levels, so this ends.
        if next == before {
            break;
        }
    }
    warden_durable::sync_folder(folder).map_err(|error| named(folder, &error))
}

/// Removes what lies at `path`, down to so many `levels`; a folder that lies deeper is moved to where `aside` says.
fn remove(path: &Path, device: u64, levels: usize, aside: &mut dyn FnMut() -> PathBuf) -> io::Result<()> {
    let meta = fs::symlink_metadata(path).map_err(|error| named(path, &error))?;
    if meta.dev() != device {
        // Another file system is mounted there; it is not this reset's.
        return Ok(());
    }
    if !meta.is_dir() {
        return fs::remove_file(path).map_err(|error| named(path, &error));
    }
    if levels == 0 {
        return fs::rename(path, aside()).map_err(|error| named(path, &error));
    }
    for item in fs::read_dir(path).map_err(|error| named(path, &error))? {
        remove(&item.map_err(|error| named(path, &error))?.path(), device, levels - 1, aside)?;
    }
    match fs::remove_dir(path) {
        // Something else is mounted inside, or on it.
        Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::ResourceBusy) => Ok(()),
        other => other.map_err(|error| named(path, &error)),
    }
}

/// A name in the folder that nothing has. `next` only counts up, so that many such folders do not take longer and longer.
fn free_name(folder: &Path, next: &mut u64) -> PathBuf {
    loop {
        let path = folder.join(format!("{MOVED}{next}"));
        *next += 1;
        if fs::symlink_metadata(&path).is_err() {
            return path;
        }
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;

    use super::*;

    fn lay(top: &Path, files: &[&str]) {
        for file in files {
            let path = top.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
    }

    fn names(folder: &Path) -> BTreeSet<String> {
        fs::read_dir(folder).unwrap().map(|item| item.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_factory_reset_leaves_the_installed_system_and_nothing_of_the_owner() {
        let top = tempfile::tempdir().unwrap();
        lay(
            top.path(),
            &[
                "warden/config.db",
                "network/connections/a.nmconnection",
                "var/lib/x/y",
                "tls/ca.key",
                "boot/unconfirmed",
                "rauc/central.raucs",
                "reset/consumed",
                "machine-id",
                ".hidden",
                "update/record.json",
                "update/trusted.json",
            ],
        );
        state(top.path()).unwrap();
        assert_eq!(names(top.path()), ["boot", "rauc", "reset", "update", "var"].map(str::to_owned).into());
        assert!(names(&top.path().join("var")).is_empty());
        assert_eq!(names(&top.path().join("update")), ["trusted.json".to_owned()].into(), "a reset is no way back to withdrawn systems");
        assert!(top.path().join("reset/consumed").exists() && top.path().join("boot/unconfirmed").exists());
        state(top.path()).unwrap();
    }

    #[test]
    fn models_stay_or_go_as_it_was_confirmed_and_packs_always_stay() {
        for (keep, left) in [(true, vec!["models", "packs"]), (false, vec!["packs"])] {
            let top = tempfile::tempdir().unwrap();
            lay(top.path(), &["models/a.gguf", "packs/p.raw", "warden/history.db", "logs/x"]);
            data(top.path(), keep).unwrap();
            assert_eq!(names(top.path()), left.into_iter().map(str::to_owned).collect());
        }
    }

    #[test]
    fn a_network_reset_touches_nothing_else() {
        let top = tempfile::tempdir().unwrap();
        lay(top.path(), &["network/connections/a", "network/extra", "var/lib/NetworkManager/lease", "var/lib/other/x", "warden/config.db"]);
        network(top.path()).unwrap();
        assert!(names(&top.path().join("network")).is_empty());
        assert!(names(&top.path().join("var/lib/NetworkManager")).is_empty());
        assert!(top.path().join("warden/config.db").exists() && top.path().join("var/lib/other/x").exists());
    }

    #[test]
    fn a_planted_link_is_removed_and_not_followed() {
        let (top, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        lay(outside.path(), &["precious"]);
        fs::create_dir_all(top.path().join("warden")).unwrap();
        symlink(outside.path(), top.path().join("warden/link")).unwrap();
        symlink(outside.path(), top.path().join("network")).unwrap();
        network(top.path()).unwrap();
        state(top.path()).unwrap();
        assert!(outside.path().join("precious").exists());
    }

    #[test]
    fn a_planted_tree_too_deep_for_any_path_does_not_save_itself_from_a_factory_reset() {
        use nix::fcntl::{OFlag, openat};
        use nix::sys::stat::{Mode, mkdirat};
        let top = tempfile::tempdir().unwrap();
        lay(top.path(), &["models/a.gguf", "packs/p.raw", ".swept-0"]);
        let name = "d".repeat(255);
        let mut at = std::os::fd::OwnedFd::from(fs::File::open(top.path()).unwrap());
        for _ in 0..1000 {
            mkdirat(&at, name.as_str(), Mode::S_IRWXU).unwrap();
            at = openat(&at, name.as_str(), OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        }
        drop(at);
        data(top.path(), false).unwrap();
        assert_eq!(names(top.path()), ["packs".to_owned()].into());
    }
}
