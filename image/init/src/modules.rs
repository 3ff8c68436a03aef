//! Kernel modules of the initrd: plain files, named so that their order is the load order. One that does not load is told and skipped;
//! what really lacks shows itself as a missing disk or root.

use std::fs::{self, File};
use std::path::Path;

use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};

use crate::say;

/// Loads every `*.ko` of the folder in the order of the names.
pub fn load(folder: &Path) {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|item| item.path())
        .filter(|path| path.extension().is_some_and(|end| end == "ko"))
        .collect();
    paths.sort();
    for path in paths {
        let outcome =
            File::open(&path).map_err(|error| error.to_string()).and_then(|file| match finit_module(&file, c"", ModuleInitFlags::empty()) {
                // Built in, loaded before, or for a device this machine lacks.
                Ok(()) | Err(Errno::EEXIST | Errno::ENODEV) => Ok(()),
                Err(errno) => Err(errno.to_string()),
            });
        if let Err(reason) = outcome {
            say::note(&format!("initrd: module {} not loaded: {reason}", path.display()));
        }
    }
}
