//! Takes out of an installed Debian tree what the appliance must not have: shells, package tools, interpreters, log-in programs,
//! setuid bits, traces of the installation. In goes the tree and the recipe's lists; the tree is changed in place.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::fault::{Done, Fault};
use crate::files;
use crate::recipe::Root;

/// Prunes `tree`.
pub(crate) fn prune(tree: &Path, recipe: &Root) -> Done {
    let info = tree.join("var/lib/dpkg/info");
    let mut going = BTreeSet::new();
    let mut staying = BTreeSet::new();
    for list in files::walk(&info)?.iter().filter(|p| p.extension().is_some_and(|e| e == "list")) {
        let package = list.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let package = package.split(':').next().unwrap_or_default().to_owned();
        let side = if recipe.prune.contains(&package) { &mut going } else { &mut staying };
        side.extend(files::read(list)?.lines().map(|line| merged_usr(line.trim_start_matches('/'))));
    }
    for name in going.difference(&staying) {
        let path = tree.join(name);
        if path.symlink_metadata().is_ok_and(|m| !m.is_dir()) {
            files::remove(&path)?;
        }
    }
    for pattern in &recipe.remove {
        for path in matching(tree, pattern)? {
            files::remove(&path)?;
        }
    }
    files::fresh_dir(&tree.join("var"))?;
    for empty in ["boot", "home", "media", "mnt", "opt", "srv", "run", "tmp", "usr/local"] {
        files::fresh_dir(&tree.join(empty))?;
    }
    for path in files::walk(tree)? {
        let Ok(meta) = path.symlink_metadata() else { continue };
        if meta.is_symlink() {
            // Names of pruned programs that lead nowhere now.
            if dangling(tree, &path) {
                files::remove(&path)?;
            }
        } else if meta.is_file() && meta.permissions().mode() & 0o6000 != 0 {
            files::mode(&path, meta.permissions().mode() & 0o1777)?;
        }
    }
    files::mode(&tree.join("tmp"), 0o1777)
}

/// Package lists may still say `bin/x` for what lies in `usr/bin/x`.
fn merged_usr(name: &str) -> String {
    let first = name.split('/').next().unwrap_or_default();
    if ["bin", "sbin", "lib", "lib64"].contains(&first) { format!("usr/{name}") } else { name.to_owned() }
}

/// Paths for a pattern whose last part may hold one `*`.
fn matching(tree: &Path, pattern: &str) -> Done<Vec<std::path::PathBuf>> {
    let full = tree.join(pattern);
    let (Some(parent), Some(last)) = (full.parent(), pattern.rsplit('/').next()) else { return Ok(Vec::new()) };
    if !last.contains('*') {
        return Ok(vec![full]);
    }
    if !parent.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(parent).map_err(Fault::io("cannot list", parent))?.flatten();
    Ok(entries.filter(|e| fits(last, &e.file_name().to_string_lossy())).map(|e| e.path()).collect())
}

/// Whether `name` fits a pattern of literal pieces with `*` between them.
fn fits(pattern: &str, name: &str) -> bool {
    let pieces: Vec<&str> = pattern.split('*').collect();
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return false };
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    for piece in &pieces[1..pieces.len() - 1] {
        match rest.split_once(piece) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// Whether a link's target is missing inside the tree. Targets in `/run`, `/proc`, `/dev` and `/var` exist only on a running system.
fn dangling(tree: &Path, link: &Path) -> bool {
    let Ok(target) = std::fs::read_link(link) else { return false };
    let absolute = target.is_absolute();
    let inside =
        if absolute { tree.join(target.strip_prefix("/").unwrap_or(&target)) } else { link.parent().map(|p| p.join(&target)).unwrap_or_default() };
    let text = target.to_string_lossy();
    let runtime = ["/run", "/proc", "/dev", "/var", "../run", "../proc", "../../run"].iter().any(|start| text.starts_with(start));
    !runtime && inside.symlink_metadata().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_with_stars_takes_only_what_it_says() {
        assert!(fits("*getty*", "serial-getty@.service") && fits("apt-*", "apt-daily.timer") && fits("bash*", "bash.bashrc"));
        assert!(!fits("apt-*", "rapt-x") && !fits("*getty*", "get.service") && !fits("a*a", "a"));
    }

    #[test]
    fn a_file_that_a_kept_package_also_lists_stays_in_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path();
        let info = tree.join("var/lib/dpkg/info");
        files::write(&info.join("dash.list"), "/bin/sh\n/usr/share/both\n").unwrap();
        files::write(&info.join("libc6:amd64.list"), "/usr/share/both\n").unwrap();
        files::write(&tree.join("usr/bin/sh"), "x").unwrap();
        files::write(&tree.join("usr/share/both"), "x").unwrap();
        files::mode(&tree.join("usr/share/both"), 0o4755).unwrap();
        std::os::unix::fs::symlink("sh", tree.join("usr/bin/rsh")).unwrap();
        prune(tree, &Root { packages: vec![], prune: vec!["dash".into()], remove: vec![] }).unwrap();
        assert!(!tree.join("usr/bin/sh").exists() && tree.join("usr/bin/rsh").symlink_metadata().is_err());
        let kept = tree.join("usr/share/both").metadata().unwrap();
        assert_eq!(kept.permissions().mode() & 0o7777, 0o755);
    }
}
