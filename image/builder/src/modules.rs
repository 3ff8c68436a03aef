//! Which kernel modules the initrd carries, and in which order they load. Pure: from the text of `modules.dep` and a list of names.

use std::collections::BTreeMap;

use crate::fault::{Done, Fault};

/// Paths (relative to the modules folder), dependencies first, none twice. `builtin` is the text of `modules.builtin`: names in it
/// need no file. A name that is nowhere is an error, because the machine that needs it would not boot.
pub(crate) fn load_order(dep: &str, builtin: &str, wanted: &[String]) -> Done<Vec<String>> {
    let mut by_name = BTreeMap::new();
    for line in dep.lines() {
        if let Some((path, needs)) = line.split_once(':') {
            by_name.insert(name(path), (path.to_owned(), needs.split_whitespace().map(str::to_owned).collect::<Vec<_>>()));
        }
    }
    let built_in: Vec<String> = builtin.lines().map(name).collect();
    let mut order: Vec<String> = Vec::new();
    for module in wanted {
        let Some((path, needs)) = by_name.get(&name(module)) else {
            if built_in.contains(&name(module)) {
                continue;
            }
            return Err(Fault::refused("image/recipe.toml", format!("this kernel has no module {module}"), "take it out of the initrd list"));
        };
        // The file lists the nearest dependency first; the farthest has to be loaded first.
        for step in needs.iter().rev().chain([path]) {
            if !order.contains(step) {
                order.push(step.clone());
            }
        }
    }
    Ok(order)
}

/// The kernel's name of a module: last part of the path, no endings, dashes as underscores.
pub(crate) fn name(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or(path);
    last.split('.').next().unwrap_or(last).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/a/dm-verity.ko.xz: kernel/a/dm-bufio.ko.xz kernel/a/dm-mod.ko.xz\nkernel/a/dm-bufio.ko.xz: kernel/a/dm-mod.ko.xz\n\
        kernel/a/dm-mod.ko.xz:\nkernel/b/loop.ko.xz:\n";

    #[test]
    fn a_module_loads_after_everything_it_needs_and_only_once() {
        let order = load_order(DEP, "", &["dm_bufio".into(), "dm-verity".into()]).unwrap();
        assert_eq!(order, ["kernel/a/dm-mod.ko.xz", "kernel/a/dm-bufio.ko.xz", "kernel/a/dm-verity.ko.xz"]);
    }

    #[test]
    fn a_built_in_driver_needs_no_file_and_an_unknown_one_stops_the_build() {
        assert!(load_order(DEP, "kernel/fs/ext4/ext4.ko\n", &["ext4".into()]).unwrap().is_empty());
        assert!(load_order(DEP, "", &["typo".into()]).is_err());
    }
}
