//! What lies on the data partition of a freshly built disk: nothing, or an engine pack, or a folder that a test wants there.
//! Owners and modes are those the running system would give.

use std::path::Path;

use crate::fault::{Done, Fault};
use crate::files;
use crate::pack::Pack;

/// A file's or folder's owner and mode on the data partition.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    user: &'static str,
    group: &'static str,
    folder: u32,
    file: u32,
}

/// Fills `tree` from the pack and the seed folder; names of accounts are looked up in the root.
pub(crate) fn fill(tree: &Path, root: &Path, pack: Option<&Pack>, seed: Option<&Path>) -> Done {
    files::fresh_dir(tree)?;
    files::mode(tree, 0o755)?;
    for folder in ["models", "packs", "warden"] {
        files::make_dir(&tree.join(folder))?;
    }
    if let Some(pack) = pack {
        for path in [pack.path.clone(), pack.path.with_extension("json")] {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            files::copy(&path, &tree.join("packs").join(name), 0o644)?;
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
    let passwd = files::read(&root.join("etc/passwd"))?;
    let group = files::read(&root.join("etc/group"))?;
    for path in files::walk(tree)? {
        let name = path.strip_prefix(tree).unwrap_or(&path);
        let rights = rights(name);
        let (uid, gid) = (number(&passwd, rights.user), number(&group, rights.group));
        let (Some(uid), Some(gid)) = (uid, gid) else {
            return Err(Fault::refused(
                "data partition",
                format!("the root has no {} or {}", rights.user, rights.group),
                "check image/overlay/usr/lib/sysusers.d",
            ));
        };
        files::own(&path, uid, gid)?;
        if !path.is_symlink() {
            files::mode(&path, if path.is_dir() { rights.folder } else { rights.file })?;
        }
    }
    Ok(())
}

fn rights(name: &Path) -> Rights {
    match name.iter().next().and_then(|first| first.to_str()) {
        Some("models") => Rights { user: "warden", group: "warden-models", folder: 0o2750, file: 0o640 },
        Some("packs") => Rights { user: "warden", group: "warden", folder: 0o755, file: 0o644 },
        Some("warden") => Rights { user: "warden", group: "warden", folder: 0o750, file: 0o640 },
        _ => Rights { user: "root", group: "root", folder: 0o755, file: 0o644 },
    }
}

/// The third field of an account's or group's line.
fn number(table: &str, name: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_can_read_a_seeded_model_and_others_cannot() {
        assert_eq!(rights(Path::new("models/a/x.gguf")).file, 0o640);
        assert_eq!(rights(Path::new("models")).group, "warden-models");
    }

    #[test]
    fn accounts_are_found_by_whole_name() {
        assert_eq!(number("warden-console:x:701:701\nwarden:x:700:700\n", "warden"), Some(700));
    }
}
