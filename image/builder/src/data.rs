//! What lies on the data partition of a freshly built disk: nothing, or an engine pack, or a folder that a test wants there.
//! Owners and modes are those the running system and the installer give.

use std::path::Path;

use warden_install::data::{Accounts, FOLDERS, PACKS, rights};

use crate::fault::{Done, Fault};
use crate::files;
use crate::pack::Pack;

/// Fills `tree` from the packs and the seed folder; names of accounts are looked up in the root.
pub(crate) fn fill(tree: &Path, root: &Path, packs: &[Pack], seed: Option<&Path>) -> Done {
    files::fresh_dir(tree)?;
    files::mode(tree, 0o755)?;
    for folder in FOLDERS {
        files::make_dir(&tree.join(folder))?;
    }
    for pack in packs {
        for path in pack.files() {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            files::copy(&path, &tree.join(PACKS).join(name), 0o644)?;
        }
    }
    if let Some(seed) = seed {
        if !seed.is_dir() {
            return Err(Fault::refused(
                seed.display().to_string(),
                "there is no such folder",
                "name a folder whose content belongs on the data partition",
            ));
        }
        files::copy_tree(seed, tree)?;
        files::mode(tree, 0o755)?;
    }
    let accounts = Accounts { passwd: files::read(&root.join("etc/passwd"))?, group: files::read(&root.join("etc/group"))? };
    for path in files::walk(tree)? {
        let rights = rights(path.strip_prefix(tree).unwrap_or(&path));
        let (uid, gid) = accounts.numbers(&rights).ok_or_else(|| {
            Fault::refused("data partition", format!("the root has no {} or {}", rights.user, rights.group), "check image/overlay/usr/lib/sysusers.d")
        })?;
        files::own(&path, uid, gid)?;
        if !path.is_symlink() {
            files::mode(&path, if path.is_dir() { rights.folder } else { rights.file })?;
        }
    }
    Ok(())
}
