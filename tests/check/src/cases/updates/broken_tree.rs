//! Deliberate breaks of the agent's code: a copy of the tree with one change, built beside the real one.
//!
//! In: the id of a case with a break in `tests/broken/breaks`. Out: an agent's program. The product's own source has no switch for any of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command;
use crate::images::work;
use crate::log::CaseLog;
use crate::stage::Stage;

/// Where the changes lie, relative to the tree.
pub const BREAKS: &str = "tests/broken/breaks";

/// The agent of the tree with the break of that case.
///
/// # Errors
/// A sentence when the change does not fit the tree any more, or with the compiler's last words.
pub fn agent(id: &str, stage: &Stage, log: &CaseLog) -> Result<PathBuf, String> {
    let root = &stage.places.root;
    let change = root.join(BREAKS).join(format!("{id}.patch"));
    let copy = work(&stage.places)?.join(format!("broken-tree-{id}"));
    copy_tree(root, &copy)?;
    let mut patch = Command::new("patch");
    patch.args(["--strip=1", "--no-backup-if-mismatch", "--input"]).arg(&change).current_dir(&copy);
    command::run_ok("applying the deliberate break, which must be fitted to the tree", patch, Duration::from_secs(30), log)?;
    let mut cargo = Command::new("cargo");
    // The same folder for what is compiled: libraries from outside are the same, and only the project's own are built again.
    cargo.args(["build", "--quiet", "--locked", "-p", "warden-agent"]).current_dir(&copy).env("CARGO_TARGET_DIR", root.join("target"));
    // Page assets are fetched, not committed; the pages embed them.
    cargo.env("WARDEN_WEB_ASSETS", root.join("target/web-assets"));
    let built = command::run_ok("building the broken agent", cargo, Duration::from_secs(3600), log);
    let program = root.join("target/debug/warden-agent");
    let kept = copy.with_extension("agent");
    let moved = built.and_then(|_| fs::copy(&program, &kept).map_err(|e| format!("{}: {e}", program.display())));
    // What was built last must not be taken for the real one.
    let _gone_already = fs::remove_file(&program);
    let _gone_already = fs::remove_dir_all(&copy);
    moved.map(|_| kept)
}

/// Copies what git knows of the tree, and what it does not ignore.
fn copy_tree(root: &Path, to: &Path) -> Result<(), String> {
    let _older = fs::remove_dir_all(to);
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("git: {e}"))?;
    let mut made = 0;
    for name in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), to.join(name));
        let said = |e: std::io::Error| format!("copying {}: {e}", from.display());
        if from.is_file() {
            fs::create_dir_all(to.parent().unwrap_or(&to)).map_err(said)?;
            fs::copy(&from, &to).map_err(said)?;
            made += 1;
        }
    }
    if made > 0 { Ok(()) } else { Err(format!("git lists no file in {}", root.display())) }
}
