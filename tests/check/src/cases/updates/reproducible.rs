//! `reproducible`: the same keys, recipe, files and date give the same bytes, in another folder and at another time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::publisher::{Publisher, Target, Wanted};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const AT: &str = "2027-03-01T00:00:00Z";

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut made = Vec::new();
    for name in ["one", "a-folder-of-another-name"] {
        let folder = tempfile::Builder::new().prefix("wardn").tempdir_in("/tmp").map_err(|e| format!("no temporary folder: {e}"))?;
        made.push(everything(&folder.path().join(name), stage, task)?);
        // Whatever a clock could put into a file would differ now.
        std::thread::sleep(Duration::from_millis(1100));
    }
    let (one, two) = (&made[0], &made[1]);
    result.expect(one.len() > 8, format!("{} files were made: {:?}", one.len(), one.keys()));
    for (name, hash) in one {
        result.expect(two.get(name) == Some(hash), format!("{name} is the same twice ({})", &hash[..12]));
    }
    result.expect(one.len() == two.len(), "and no other file was made");
    Ok(())
}

/// Keys, a release, a channel, a bundle, a rotation and its channel: the hash of every file by its name.
fn everything(work: &Path, stage: &Stage, task: &Task) -> Result<BTreeMap<String, String>, String> {
    let publisher = Publisher::stranger(&stage.places, work, "reproducible", &["--at", AT], &task.log)?;
    let said = |e: std::io::Error| format!("{}: {e}", work.display());
    let image = work.join("image.raucb");
    fs::write(&image, vec![7; 5 << 20]).map_err(said)?;
    let model = work.join("model.gguf");
    fs::write(&model, vec![9; 70_000]).map_err(said)?;
    let more = "licence = \"Apache-2.0\"\nsource = \"https://models.example/m\"\nnotes = \"Small.\"".to_owned();
    let targets = |version: &str| {
        let model = Target { kind: "model", name: "small", version: "1".to_owned(), file: model.clone(), more: more.clone() };
        vec![model, Target::os(version, &image)]
    };
    let first = Wanted { at: Some(AT.to_owned()), ..Wanted::version(1, targets("1.0.0")) };
    let channel = publisher.publish("stable", &first)?;
    publisher.bundle(&channel, "one")?;
    let keys = publisher.keys().display().to_string();
    publisher.run(&["keys", "rotate", "--dir", &keys, "--replace", "release-1", "--dev-seed", "again", "--at", AT])?;
    let channel = publisher.publish("stable", &Wanted { version: 2, ..first })?;
    publisher.bundle(&channel, "two")?;
    let mut hashes = BTreeMap::new();
    let mut folders = vec![work.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(said)?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_none_or(|end| end != "toml") {
                let name = path.strip_prefix(work).map(|p| p.display().to_string()).unwrap_or_default();
                hashes.insert(name, hex::encode(Sha256::digest(fs::read(&path).map_err(said)?)));
            }
        }
    }
    Ok(hashes)
}
