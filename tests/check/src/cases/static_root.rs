//! The production root as a tree of files: no shell, no setuid file, no getty, no ssh, no private key.
//!
//! The deliberate break hands the test flavour's root to the same check, which has a shell.

use std::process::Command;
use std::time::Duration;

use crate::command;
use crate::images::{Flavour, PackKind, warden_image};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let (images, places) = stage.images();
    // The disk's own root is checked: building the disk builds the tree it is sealed from.
    let disk = images.disk(Flavour::Production, PackKind::Signed, places, &task.log)?;
    result.note(format!("checked the tree behind root hash {}", disk.hashes.get("roothash").map_or("unknown", String::as_str)));
    let mut check = Command::new(places.debug_program("warden-image"));
    check.args(["check-root", "--flavour", "production"]).current_dir(&places.root);
    if task.sabotage {
        warden_image(places, &["root", "--flavour", "test", "--as-they-are"], Duration::from_secs(3600), &task.log)?;
        let tree = places.root.join("target/image/test/root");
        if !tree.is_dir() {
            return Err(format!("the test flavour's root is not in {}", tree.display()));
        }
        check.arg("--root").arg(tree);
    }
    let ran = command::run(check, Duration::from_secs(300), &task.log)?;
    result.expect(ran.ok(), format!("the root holds no shell, setuid file, getty, ssh or private key ({})", ran.tail(3)));
    if !task.sabotage {
        let mut twin = Command::new(places.debug_program("warden-image"));
        warden_image(places, &["root", "--flavour", "test", "--as-they-are"], Duration::from_secs(3600), &task.log)?;
        twin.args(["check-root", "--flavour", "test"]).current_dir(&places.root);
        let ran = command::run(twin, Duration::from_secs(300), &task.log)?;
        result.expect(ran.ok(), format!("the test flavour differs from it by its one directory ({})", ran.tail(3)));
    }
    Ok(())
}
