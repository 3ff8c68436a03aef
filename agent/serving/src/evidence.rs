//! What is kept of an engine that was given up: its log, what the system said of its processes, its last figures. Bounded in number and size.
//!
//! One folder per incident below the state folder's `evidence`, named by moment and replica; the newest ones are kept. Blocking.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use warden_domain::{
    engine::Launch,
    ids::ModelId,
    model::{Incident, StateReason},
    replica::{Kept, Sampled},
    units::Bytes,
};

use crate::redact::redacted;

/// Folders kept in all.
const KEPT: usize = 20;
/// Most bytes of one file.
const LARGEST: usize = 256 * 1024;
const REPORT: &str = "report.json";

/// What is to be kept.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    pub(crate) model: ModelId,
    pub(crate) launch: Launch,
    pub(crate) reason: StateReason,
    pub(crate) sample: Option<Sampled>,
    /// The end of its log.
    pub(crate) log: Vec<String>,
    /// Further texts by file name.
    pub(crate) traces: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
struct Report {
    model: ModelId,
    launch: String,
    incident: Incident,
    last_figures: Option<String>,
}

/// Writes a folder and removes the oldest ones beyond the limit. The incident comes back also when nothing could be written.
pub(crate) fn keep(folder: &Path, evidence: &Evidence) -> Incident {
    let at = warden_domain::clock::now();
    let name = format!("{}-{}", at.strftime("%Y%m%dT%H%M%S%3fZ"), evidence.launch.replica);
    let mut incident =
        Incident { at, replica: evidence.launch.replica.clone(), reason: evidence.reason.clone(), evidence: Some(format!("evidence/{name}")) };
    if let Err(cause) = write(&folder.join(&name), evidence, &incident) {
        tracing::warn!(%cause, replica = %evidence.launch.replica, "nothing could be kept of an engine that was given up");
        let _ = fs::remove_dir_all(folder.join(&name));
        incident.evidence = None;
    }
    let all = folders(folder);
    for old in all.iter().rev().skip(KEPT) {
        let _ = fs::remove_dir_all(old);
    }
    incident
}

fn write(folder: &Path, evidence: &Evidence, incident: &Incident) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let log = evidence.log.join("\n");
    fs::write(folder.join("engine.log"), end_of(&log))?;
    for (name, text) in &evidence.traces {
        if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-') && name != REPORT {
            fs::write(folder.join(name), end_of(text))?;
        }
    }
    let report = Report {
        model: evidence.model.clone(),
        launch: evidence.launch.launch.clone(),
        incident: incident.clone(),
        last_figures: evidence.sample.as_ref().map(|sampled| format!("{} {:?}", sampled.at, sampled.sample)),
    };
    fs::write(folder.join(REPORT), serde_json::to_vec_pretty(&report).map_err(io::Error::other)?)
}

fn end_of(text: &str) -> &[u8] {
    &text.as_bytes()[text.len().saturating_sub(LARGEST)..]
}

/// Incidents of earlier, newest first. What cannot be read is passed over.
pub(crate) fn known(folder: &Path) -> Vec<(ModelId, Incident)> {
    let reports = folders(folder).into_iter().rev().take(KEPT);
    reports.filter_map(|folder| report(&folder)).map(|report| (report.model, report.incident)).collect()
}

/// What is kept of one model, newest first. Files in the order of their names.
pub(crate) fn of_model(folder: &Path, model: &ModelId) -> Vec<Kept> {
    let folders = folders(folder).into_iter().rev().take(KEPT);
    folders
        .filter_map(|folder| {
            let report = report(&folder).filter(|report| report.model == *model)?;
            let about = |entry: fs::DirEntry| {
                let size = entry.metadata().ok().filter(fs::Metadata::is_file)?.len();
                Some((entry.file_name().into_string().ok()?, Bytes(size)))
            };
            let mut files: Vec<_> = fs::read_dir(&folder).ok()?.filter_map(Result::ok).filter_map(about).take(KEPT).collect();
            files.sort_by(|a, b| a.0.cmp(&b.0));
            Some(Kept { name: folder.file_name()?.to_str()?.to_owned(), incident: report.incident, files })
        })
        .collect()
}

/// One of these files, without secrets; `None` when there is none of that name.
pub(crate) fn file(folder: &Path, model: &ModelId, name: &str, file: &str) -> Option<String> {
    // Only what is listed is read, so that no name leads anywhere else.
    let kept = of_model(folder, model).into_iter().find(|kept| kept.name == name)?;
    let (file, _) = kept.files.into_iter().find(|(listed, _)| listed == file)?;
    let bytes = fs::read(folder.join(kept.name).join(file)).ok()?;
    Some(redacted(&String::from_utf8_lossy(&bytes[..bytes.len().min(LARGEST * 2)])))
}

fn report(folder: &Path) -> Option<Report> {
    let path = folder.join(REPORT);
    let small = fs::symlink_metadata(&path).is_ok_and(|about| about.is_file() && about.len() <= LARGEST as u64);
    small.then(|| fs::read(&path).ok()).flatten().and_then(|bytes| serde_json::from_slice(&bytes).ok())
}

/// Oldest first: their names begin with the moment.
fn folders(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::launch;

    fn evidence(log: &str) -> Evidence {
        Evidence {
            model: ModelId::from_stored("mdl_1"),
            launch: launch("L"),
            reason: StateReason { code: "engine_hangs".to_owned(), message: "It hangs.".to_owned(), hint: None },
            sample: None,
            log: vec![log.to_owned()],
            traces: vec![("processes.txt".to_owned(), "State: S".to_owned()), ("../outside".to_owned(), "x".to_owned())],
        }
    }

    #[test]
    fn what_was_kept_is_found_again_and_nothing_lies_outside() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("evidence");
        let incident = keep(&folder, &evidence("last words"));
        let place = dir.path().join(incident.evidence.clone().unwrap());
        assert_eq!(fs::read_to_string(place.join("engine.log")).unwrap(), "last words");
        assert!(place.join("processes.txt").is_file());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(known(&folder), [(ModelId::from_stored("mdl_1"), incident)]);
    }

    #[test]
    fn what_was_kept_is_listed_for_its_model_and_read_without_secrets_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let (model, other) = (ModelId::from_stored("mdl_1"), ModelId::from_stored("mdl_2"));
        let folder = dir.path().join("evidence");
        fs::write(dir.path().join("secret"), "x").unwrap();
        keep(&folder, &evidence("key=vw_0123456789abcdef was sent"));
        let [kept] = &of_model(&folder, &model)[..] else { panic!("not one") };
        assert_eq!(kept.files.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["engine.log", "processes.txt", "report.json"]);
        assert_eq!(file(&folder, &model, &kept.name, "engine.log").unwrap(), "key=[secret] was sent");
        assert!(of_model(&folder, &other).is_empty());
        for (name, path) in [(kept.name.as_str(), "../../secret"), ("..", "secret"), (".", "engine.log"), (kept.name.as_str(), "")] {
            assert_eq!(file(&folder, &model, name, path), None, "{name}/{path}");
        }
        assert_eq!(file(&folder, &other, &kept.name, "engine.log"), None, "another model's");
    }

    #[test]
    fn neither_the_number_nor_the_size_grows_without_end() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..30 {
            fs::create_dir(dir.path().join(format!("2000010{}T000000000Z-old-{number}", number % 10))).unwrap();
        }
        let incident = keep(dir.path(), &evidence(&"x".repeat(LARGEST * 2)));
        assert_eq!(folders(dir.path()).len(), KEPT);
        let newest = folders(dir.path()).pop().unwrap();
        assert!(incident.evidence.unwrap().ends_with(newest.file_name().unwrap().to_str().unwrap()));
        assert_eq!(fs::metadata(newest.join("engine.log")).unwrap().len(), LARGEST as u64);
    }

    #[test]
    fn a_disk_that_takes_nothing_does_not_keep_the_engine_from_being_restarted() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("evidence");
        fs::write(&file, b"").unwrap();
        assert_eq!(keep(&file, &evidence("x")).evidence, None);
    }
}
