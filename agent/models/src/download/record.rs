//! What is wanted and how far it is, on disk: one small file per download, written whole.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use warden_domain::{
    Problem, ProblemKind,
    download::DownloadState,
    engine::EngineKind,
    hub::Promise,
    ids::{DownloadId, ModelId},
    model::Layout,
    units::{Bytes, Tokens},
};

use crate::hub::is_projector;

/// The folder of records inside the models folder.
const FOLDER: &str = ".downloads";
const LONGEST: u64 = 4 << 20;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordFile {
    /// Path inside the repository and inside the download's folder.
    pub(crate) path: String,
    pub(crate) size: Bytes,
    pub(crate) promise: Promise,
    /// Up to here its bytes are on the disk.
    #[serde(default)]
    pub(crate) safe: u64,
    /// Checksum of these bytes, of the same kind as the promise.
    #[serde(default)]
    pub(crate) prefix: String,
    /// It has its name.
    #[serde(default)]
    pub(crate) done: bool,
    /// This download brought it. What lay there before is not ours to remove.
    #[serde(default)]
    pub(crate) ours: bool,
}

/// Why it waits or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reason {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl From<&Problem> for Reason {
    fn from(problem: &Problem) -> Self {
        Self { message: problem.message.clone(), hint: problem.hint.clone() }
    }
}

impl Reason {
    pub(crate) fn problem(&self) -> Problem {
        let problem = Problem::new(ProblemKind::Upstream, self.message.clone());
        match &self.hint {
            Some(hint) => problem.hint(hint.clone()),
            None => problem,
        }
    }
}

/// A download as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) id: DownloadId,
    pub(crate) created_at: Timestamp,
    pub(crate) repo: String,
    pub(crate) revision: String,
    pub(crate) commit: String,
    pub(crate) served_name: String,
    pub(crate) context: Option<Tokens>,
    pub(crate) slots: Option<u16>,
    #[serde(default)]
    pub(crate) layout: Layout,
    pub(crate) load: bool,
    /// Who runs it: one engine is given a file, the other one the folder. Older records know files only.
    #[serde(default = "older")]
    pub(crate) engine: EngineKind,
    /// Its folder inside the models folder.
    pub(crate) folder: String,
    pub(crate) files: Vec<RecordFile>,
    pub(crate) state: DownloadState,
    pub(crate) reason: Option<Reason>,
    pub(crate) model: Option<ModelId>,
}

const fn older() -> EngineKind {
    EngineKind::LlamaCpp
}

impl Record {
    /// The folder of the files of a choice: weights in another form never lie beside those of a GGUF file, or neither could be told as one model.
    pub(crate) fn folder_for(repo: &str, commit: &str, engine: EngineKind) -> String {
        let end = if engine == EngineKind::Vllm { "-hf" } else { "" };
        format!("{}-{}{end}", repo.replace('/', "--"), commit.get(..8).unwrap_or(commit))
    }

    /// What is registered once all files are here.
    pub(crate) fn model_path(&self, models_dir: &Path) -> PathBuf {
        match (self.engine, self.files.first()) {
            (EngineKind::LlamaCpp, Some(first)) => self.target(models_dir, first),
            _ => models_dir.join(&self.folder),
        }
    }

    /// Bytes still to come.
    pub(crate) fn needed(&self) -> u64 {
        let left = self.files.iter().filter(|file| !file.done).map(|file| file.size.0.saturating_sub(file.safe));
        // More than there can be is refused for its room, and never comes out as little.
        left.fold(0, u64::saturating_add)
    }

    /// All bytes.
    pub(crate) fn size(&self) -> Bytes {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Where a file of it goes.
    pub(crate) fn target(&self, models_dir: &Path, file: &RecordFile) -> PathBuf {
        models_dir.join(&self.folder).join(&file.path)
    }

    /// The arguments that the model is registered with: the ones that were asked for, and the image part where one came along and nothing was
    /// said of one.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = self.layout.extra_args.clone();
        let said = arguments.iter().any(|word| {
            let name = word.split('=').next().unwrap_or_default().replace('_', "-");
            matches!(name.as_str(), "-mm" | "--no-mmproj") || name.starts_with("--mmproj")
        });
        if let Some(file) = self.files.iter().find(|file| is_projector(&file.path)).filter(|_| self.engine == EngineKind::LlamaCpp && !said) {
            // A file beside the model is named by its name alone.
            arguments.extend(["--mmproj".to_owned(), file.path.rsplit('/').next().unwrap_or_default().to_owned()]);
        }
        arguments
    }

    fn file(models_dir: &Path, id: &DownloadId) -> PathBuf {
        models_dir.join(FOLDER).join(format!("{id}.json"))
    }

    /// Writes it. Blocking.
    pub(crate) fn save(&self, models_dir: &Path) -> Result<(), Problem> {
        let said = |cause: std::io::Error| Problem::from_io("writing down a download", &cause);
        fs::create_dir_all(models_dir.join(FOLDER)).map_err(said)?;
        let text = serde_json::to_vec_pretty(self).map_err(|_| Problem::internal("A download cannot be written down."))?;
        warden_durable::write(&Self::file(models_dir, &self.id), &text).map_err(said)
    }

    /// Forgets it. Blocking.
    pub(crate) fn remove(&self, models_dir: &Path) -> Result<(), Problem> {
        match fs::remove_file(Self::file(models_dir, &self.id)) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => Err(Problem::from_io("forgetting a download", &cause)),
            _ => Ok(()),
        }
    }

    /// All records of a folder; one that cannot be read is left where it is and told in the log. Blocking.
    pub(crate) fn all(models_dir: &Path) -> Vec<Self> {
        let entries = fs::read_dir(models_dir.join(FOLDER)).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "json"));
        let paths = paths.filter(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')));
        let mut records: Vec<Self> = paths.filter_map(|path| read(&path)).collect();
        records.sort_by_key(|record| record.created_at);
        records
    }
}

/// Folders of which a download still lacks files, by their real paths. Blocking.
pub(crate) fn unfinished(models_dir: &Path) -> BTreeSet<PathBuf> {
    let records = Record::all(models_dir).into_iter().filter(|record| record.files.iter().any(|file| !file.done));
    records.filter_map(|record| models_dir.join(record.folder).canonicalize().ok()).collect()
}

fn read(path: &Path) -> Option<Record> {
    let fine = fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() <= LONGEST);
    let record = fs::read(path).ok().filter(|_| fine).and_then(|text| serde_json::from_slice::<Record>(&text).ok());
    if record.is_none() {
        tracing::warn!(path = %path.display(), "the record of a download cannot be read; its files stay as they are");
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(files: &[(&str, u64)], extra: &[&str]) -> Record {
        let file = |(path, size): &(&str, u64)| RecordFile {
            path: (*path).to_owned(),
            size: Bytes(*size),
            promise: Promise::Sha256(String::new()),
            safe: 0,
            prefix: String::new(),
            done: false,
            ours: false,
        };
        Record {
            id: DownloadId::random(),
            created_at: Timestamp::UNIX_EPOCH,
            repo: "a/b".to_owned(),
            revision: "main".to_owned(),
            commit: "0123456".to_owned(),
            served_name: "b".to_owned(),
            context: None,
            slots: None,
            layout: Layout { extra_args: extra.iter().map(|&word| word.to_owned()).collect(), ..Layout::default() },
            load: false,
            engine: EngineKind::LlamaCpp,
            folder: "f".to_owned(),
            files: files.iter().map(file).collect(),
            state: DownloadState::Queued,
            reason: None,
            model: None,
        }
    }

    #[test]
    fn sizes_that_add_up_to_more_than_there_can_be_never_come_out_as_little() {
        assert_eq!(record(&[("a.gguf", u64::MAX), ("b.gguf", 7)], &[]).needed(), u64::MAX);
        assert_eq!(record(&[("a.gguf", u64::MAX), ("b.gguf", 7)], &[]).size(), Bytes(u64::MAX));
    }

    #[test]
    fn an_image_part_is_given_to_the_engine_unless_the_admin_said_something_of_one() {
        let files = [("m.gguf", 1), ("mmproj-f16.gguf", 1)];
        assert_eq!(record(&files, &["--seed", "1"]).arguments(), ["--seed", "1", "--mmproj", "mmproj-f16.gguf"]);
        for own in [&["--no-mmproj"][..], &["-mm", "/x"], &["--mmproj=/x"], &["--no_mmproj"], &["--mmproj-auto"]] {
            assert_eq!(record(&files, own).arguments(), own);
        }
        assert!(record(&files[..1], &[]).arguments().is_empty());
    }
}
