//! What a release carries besides the system: engine packs become packs, models become files of the models folder. Where each lies, and how
//! a checked file gets there.

use std::fs::{self, File};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use warden_domain::change::Topic;
use warden_domain::engine::EngineKind;
use warden_domain::{Problem, ProblemKind};
use warden_trust::{Entry, Kind};

use crate::fault::Fault;
use crate::host::Places;
use crate::room::{UpdateRoom, blocking};

/// The first bytes of a model file that can be served.
const GGUF: &[u8] = b"GGUF";

/// Where a target of this kind lies once it is taken over; `None` for what is not taken over.
pub(crate) fn place(places: &Places, entry: &Entry) -> Option<PathBuf> {
    match entry.kind {
        Kind::Os => Some(places.files.join("targets").join(entry.sha256.to_string())),
        Kind::Engine if EngineKind::from_stored(&entry.name).is_some() => Some(places.packs.join(format!("{}.raw", entry.sha256))),
        Kind::Model => Some(places.models.join(format!("{}.gguf", model_name(entry)))),
        Kind::Engine | Kind::Driver => None,
    }
}

/// A model's file name without its ending: name and version, with nothing in it that means something to a path.
fn model_name(entry: &Entry) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '-' };
    format!("{}-{}", entry.name, entry.version).chars().map(plain).collect()
}

/// Whether it is in its place already.
pub(crate) fn is_there(places: &Places, entry: &Entry) -> bool {
    let Some(path) = place(places, entry) else { return false };
    let whole = fs::symlink_metadata(&path).is_ok_and(|about| about.is_file() && about.len() == entry.bytes);
    whole && (entry.kind != Kind::Engine || path.with_extension("json").is_file())
}

/// A new hidden file beside the place, for bytes that are still being checked; its rights are those of the place.
pub(crate) fn hidden(path: &Path, kind: Kind) -> Result<(File, PathBuf), Fault> {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let hidden = path.with_file_name(format!(".{name}.part"));
    match fs::remove_file(&hidden) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            return Err(Fault::io(format!("{} cannot be replaced", hidden.display()))(cause));
        }
        _ => {}
    }
    let mode = if kind == Kind::Engine { 0o644 } else { 0o640 };
    let made = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&hidden);
    let file = made.map_err(Fault::io(format!("{} cannot be made", hidden.display())))?;
    file.set_permissions(fs::Permissions::from_mode(mode)).map_err(Fault::io(format!("{} cannot be made readable", hidden.display())))?;
    Ok((file, hidden))
}

/// Gives a checked, synced file its name; a pack gets its description after it, so that a pack with a description is always whole.
pub(crate) fn name(hidden: &Path, path: &Path, entry: &Entry) -> Result<(), Fault> {
    if entry.kind == Kind::Model && !begins_as_model(hidden) {
        let _gone_already = fs::remove_file(hidden);
        let problem = Problem::new(ProblemKind::Invalid, format!("{} is no GGUF file, so that no engine here can serve it.", entry.subject()));
        return Err(problem.hint("Ask its publisher for a GGUF file.").into());
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::rename(hidden, path)
        .and_then(|()| warden_durable::sync_folder(folder))
        .map_err(Fault::io(format!("{} cannot be put in place", path.display())))?;
    if entry.kind == Kind::Engine {
        let text = json!({"engine": entry.name, "version": entry.version, "digest": entry.sha256.to_string()});
        warden_durable::write_for_all(&path.with_extension("json"), format!("{text:#}\n").as_bytes())
            .map_err(Fault::io("the description of the engine pack cannot be written"))?;
    }
    Ok(())
}

fn begins_as_model(path: &Path) -> bool {
    use std::io::Read;
    let mut head = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == GGUF
}

impl UpdateRoom {
    /// Puts a fetched and checked target in its place.
    pub(crate) async fn place_fetched(&self, entry: &Entry, cancel: &Arc<AtomicBool>) -> Result<(), Fault> {
        let (places, from, entry) = (self.places.clone(), self.target(&entry.sha256), entry.clone());
        let kind = entry.kind;
        let (named, cancel) = (entry.clone(), cancel.clone());
        blocking(move || {
            let path = place(&places, &entry).ok_or_else(|| Fault::NothingInside { detail: format!(": {} is not for it", entry.subject()) })?;
            let (mut out, hidden) = hidden(&path, entry.kind)?;
            let copied = File::open(&from).and_then(|mut file| std::io::copy(&mut file, &mut out)).and_then(|_| out.sync_all());
            if cancel.load(Ordering::Relaxed) {
                let _gone_already = fs::remove_file(&hidden);
                return Err(Fault::Cancelled);
            }
            if let Err(cause) = copied {
                let _gone_already = fs::remove_file(&hidden);
                return Err(Fault::io(format!("{} cannot be copied to its place", entry.subject()))(cause));
            }
            name(&hidden, &path, &entry)?;
            let _gone_already = fs::remove_file(&from);
            Ok(())
        })
        .await?;
        self.told_of(kind);
        self.note("added", &named.version, &self.machine.version, Some(format!("{}.", crate::fault::sentence(&named.subject())))).await;
        Ok(())
    }

    /// Tells the rooms that look after such things.
    pub(crate) fn told_of(&self, kind: Kind) {
        match kind {
            Kind::Engine => self.changes.publish(Topic::Engines),
            Kind::Model => self.changes.publish(Topic::Models),
            Kind::Os | Kind::Driver => {}
        }
        self.told();
    }
}

#[cfg(test)]
mod tests {
    use warden_trust::{Digest, Requires};

    use super::*;

    fn entry(kind: Kind, name: &str, version: &str) -> Entry {
        Entry {
            kind,
            name: name.into(),
            version: version.into(),
            sha256: Digest::of(b"x"),
            bytes: 8,
            part_bytes: 65536,
            parts: Vec::new(),
            requires: Requires::default(),
            data_schema: None,
            manifest_hash: None,
            waves: Vec::new(),
            notes: None,
            licence: None,
            source: None,
        }
    }

    fn places(folder: &Path) -> Places {
        let of = |name: &str| folder.join(name);
        for name in ["packs", "models", "files"] {
            fs::create_dir_all(of(name)).unwrap();
        }
        Places {
            state: of("state"),
            health: of("health"),
            boot: of("boot"),
            files: of("files"),
            packs: of("packs"),
            models: of("models"),
            trust: of("trust"),
        }
    }

    #[test]
    fn a_version_cannot_lead_a_model_out_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = place(&places(folder.path()), &entry(Kind::Model, "tiny", "../../etc/x")).unwrap();
        assert_eq!(path.parent().unwrap(), folder.path().join("models"));
        assert_eq!(path.file_name().unwrap(), "tiny-..-..-etc-x.gguf");
    }

    #[test]
    fn a_pack_gets_its_description_last_and_is_readable_for_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let (places, entry) = (places(folder.path()), entry(Kind::Engine, "llama.cpp", "b1"));
        let path = place(&places, &entry).unwrap();
        let (mut file, hidden) = hidden(&path, Kind::Engine).unwrap();
        std::io::Write::write_all(&mut file, b"a pack..").unwrap();
        assert!(!is_there(&places, &entry));
        name(&hidden, &path, &entry).unwrap();
        assert!(is_there(&places, &entry));
        let text = fs::read_to_string(path.with_extension("json")).unwrap();
        assert!(text.contains("\"engine\": \"llama.cpp\"") && text.contains(&entry.sha256.to_string()), "{text}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(place(&places, &super::tests::entry(Kind::Engine, "unknown", "1")).is_none());
    }

    #[test]
    fn a_file_that_is_no_model_does_not_become_one() {
        let folder = tempfile::tempdir().unwrap();
        let (places, entry) = (places(folder.path()), entry(Kind::Model, "tiny", "1"));
        let path = place(&places, &entry).unwrap();
        let (mut file, beside) = hidden(&path, Kind::Model).unwrap();
        std::io::Write::write_all(&mut file, b"\x7fELF....").unwrap();
        assert!(name(&beside, &path, &entry).unwrap_err().to_string().contains("no GGUF file"));
        assert_eq!(fs::read_dir(folder.path().join("models")).unwrap().count(), 0);
    }
}
