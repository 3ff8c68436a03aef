//! Bundle files on their way here from a browser: begun with name and size, filled piece by piece from where they stand, over restarts too. A
//! file's own length says where it stands, because each piece is on the medium before the next is asked for; what is in it is checked later.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use warden_domain::update::Upload;
use warden_domain::{Problem, ProblemKind, clock, units::Bytes};

use crate::preflight::MARGIN;

/// The most bytes of one piece.
pub const PIECE_MAX: usize = 16 << 20;
/// Uploads at the same time.
const MOST: usize = 4;
/// One that nobody went on with for so long is thrown away.
const FORGOTTEN: SignedDuration = SignedDuration::from_hours(24 * 7);

#[derive(Serialize, Deserialize)]
struct About {
    name: String,
    bytes: u64,
    begun_at: Timestamp,
}

/// The folder of uploads. Blocking.
#[derive(Clone, Debug)]
pub(crate) struct Uploads {
    folder: PathBuf,
}

impl Uploads {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// All of them, the oldest first.
    pub(crate) fn list(&self) -> Vec<Upload> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| Some(entry.path().file_name()?.to_str()?.strip_suffix(".json")?.to_owned()));
        let mut all: Vec<_> = ids.filter_map(|id| self.get(&id).ok()).collect();
        all.sort_by(|a, b| (a.begun_at, &a.id).cmp(&(b.begun_at, &b.id)));
        all
    }

    pub(crate) fn open(&self, name: &str, bytes: u64, free: u64) -> Result<Upload, Problem> {
        let name = name.rsplit(['/', '\\']).next().unwrap_or_default().trim();
        let invalid = |why: &str, param: &str| Err(Problem::new(ProblemKind::Invalid, why).param(param));
        if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
            return invalid("The name of the file is empty, too long, or has control characters.", "name");
        }
        if bytes == 0 {
            return invalid("The file is empty. Choose a bundle that ends in .wob.", "bytes");
        }
        let now = clock::now();
        for old in self.list().into_iter().filter(|upload| now.duration_since(self.touched(upload)) > FORGOTTEN) {
            self.remove(&old.id)?;
        }
        if self.list().len() >= MOST {
            return Err(Problem::new(ProblemKind::Conflict, format!("{MOST} uploads are under way already."))
                .hint("Finish one of them, or throw one away, then begin again."));
        }
        // What is in the bundle needs room once more when it is taken over.
        let needed = bytes.saturating_mul(2).saturating_add(MARGIN);
        if free < needed {
            return Err(Problem::new(
                ProblemKind::DiskFull,
                format!(
                    "A bundle of {} needs {} on the data disk while it is taken over, and {} are free.",
                    Bytes(bytes),
                    Bytes(needed),
                    Bytes(free)
                ),
            )
            .hint("Remove models that are not needed, or read the bundle from a stick, which needs half of that."));
        }
        let mut raw = [0_u8; 12];
        getrandom::fill(&mut raw).map_err(|cause| Problem::internal(format!("The system gives no random bytes: {cause}.")))?;
        let id = hex::encode(raw);
        let about = About { name: name.to_owned(), bytes, begun_at: now };
        let text = serde_json::to_vec(&about).map_err(|cause| Problem::internal(cause.to_string()))?;
        let failed = |cause: std::io::Error| Problem::from_io("beginning the upload", &cause);
        File::create_new(self.data(&id)).and_then(|file| file.sync_all()).map_err(failed)?;
        warden_durable::write(&self.about(&id), &text).map_err(failed)?;
        self.get(&id)
    }

    pub(crate) fn get(&self, id: &str) -> Result<Upload, Problem> {
        let known = id.len() == 24 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let about = known.then(|| fs::read(self.about(id)).ok()).flatten().and_then(|text| serde_json::from_slice::<About>(&text).ok());
        let (Some(about), Ok(data)) = (about, fs::metadata(self.data(id))) else {
            return Err(Problem::new(ProblemKind::NotFound, "There is no such upload.").hint("GET /api/updates lists those that are under way."));
        };
        let received = data.len().min(about.bytes);
        Ok(Upload { id: id.to_owned(), name: about.name, bytes: Bytes(about.bytes), received: Bytes(received), begun_at: about.begun_at })
    }

    pub(crate) fn put(&self, id: &str, offset: u64, piece: &[u8]) -> Result<Upload, Problem> {
        let upload = self.get(id)?;
        if offset != upload.received.0 {
            return Err(Problem::new(
                ProblemKind::Conflict,
                format!("The upload stands at byte {}, and this piece begins at byte {offset}.", upload.received.0),
            )
            .hint("Go on from where it stands.")
            .param("offset"));
        }
        if piece.len() > PIECE_MAX || offset.saturating_add(piece.len() as u64) > upload.bytes.0 {
            return Err(Problem::new(
                ProblemKind::TooLarge,
                format!("The piece goes beyond the {} of the file, or is larger than {}.", upload.bytes, Bytes(PIECE_MAX as u64)),
            )
            .hint("Send the bytes that are missing, in smaller pieces."));
        }
        let written = OpenOptions::new().write(true).open(self.data(id)).and_then(|mut file| {
            file.seek(SeekFrom::Start(offset))?;
            let done = file.write_all(piece).and_then(|()| file.sync_data());
            if done.is_err() {
                file.set_len(offset)?;
            }
            done
        });
        written.map_err(|cause| Problem::from_io("writing the upload", &cause))?;
        self.get(id)
    }

    pub(crate) fn remove(&self, id: &str) -> Result<(), Problem> {
        self.get(id)?;
        let failed = |cause: std::io::Error| Problem::from_io("removing the upload", &cause);
        fs::remove_file(self.about(id)).map_err(failed)?;
        fs::remove_file(self.data(id)).map_err(failed)
    }

    /// The file of an upload that is whole.
    pub(crate) fn whole(&self, id: &str) -> Result<PathBuf, Problem> {
        let upload = self.get(id)?;
        if upload.received < upload.bytes {
            return Err(Problem::new(ProblemKind::Conflict, format!("{} of {} are here.", upload.received, upload.bytes))
                .hint("Send the rest of the file first."));
        }
        Ok(self.data(id))
    }

    fn touched(&self, upload: &Upload) -> Timestamp {
        let modified = fs::metadata(self.data(&upload.id)).and_then(|about| about.modified()).ok();
        modified.and_then(|time| Timestamp::try_from(time).ok()).unwrap_or(upload.begun_at)
    }

    fn about(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.json"))
    }

    fn data(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.wob"))
    }
}

/// Whether a file on a stick looks like a bundle.
pub(crate) fn is_bundle(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("wob"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uploads() -> (tempfile::TempDir, Uploads) {
        let folder = tempfile::tempdir().unwrap();
        let uploads = Uploads::new(folder.path().to_owned());
        (folder, uploads)
    }

    #[test]
    fn an_upload_goes_on_where_it_stands_also_after_a_restart() {
        let (folder, uploads) = uploads();
        let id = uploads.open("C:\\fakepath\\stable-4.wob", 10, u64::MAX).unwrap().id;
        assert_eq!(uploads.put(&id, 0, b"01234").unwrap().received, Bytes(5));
        let again = Uploads::new(folder.path().to_owned());
        let found = again.list().remove(0);
        assert_eq!((found.name.as_str(), found.received), ("stable-4.wob", Bytes(5)));
        assert_eq!(again.put(&id, 4, b"x").unwrap_err().kind, ProblemKind::Conflict);
        assert_eq!(again.whole(&id).unwrap_err().kind, ProblemKind::Conflict);
        again.put(&id, 5, b"56789").unwrap();
        assert_eq!(fs::read(again.whole(&id).unwrap()).unwrap(), b"0123456789");
        again.remove(&id).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn more_than_was_said_is_not_taken() {
        let (_folder, uploads) = uploads();
        let id = uploads.open("a.wob", 4, u64::MAX).unwrap().id;
        assert_eq!(uploads.put(&id, 0, b"12345").unwrap_err().kind, ProblemKind::TooLarge);
        assert_eq!(uploads.get(&id).unwrap().received, Bytes(0));
    }

    #[test]
    fn a_full_disk_and_strange_names_are_refused_before_the_first_byte() {
        let (_folder, uploads) = uploads();
        assert_eq!(uploads.open("a.wob", 1000, MARGIN).unwrap_err().kind, ProblemKind::DiskFull);
        for bad in ["", "  ", "a\nb", "x/"] {
            assert_eq!(uploads.open(bad, 10, u64::MAX).unwrap_err().kind, ProblemKind::Invalid, "{bad:?}");
        }
        assert_eq!(uploads.get("../../../../etc/passwd..").unwrap_err().kind, ProblemKind::NotFound);
        for _ in 0..MOST {
            uploads.open("a.wob", 10, u64::MAX).unwrap();
        }
        assert_eq!(uploads.open("a.wob", 10, u64::MAX).unwrap_err().kind, ProblemKind::Conflict);
    }
}
