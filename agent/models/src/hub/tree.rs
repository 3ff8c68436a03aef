//! The hub's answers about a repository, as values. Untrusted: names are checked, numbers of entries are bounded by the caller. Pure.

use std::fmt;

use http::{HeaderMap, Uri, header};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use warden_domain::hub::Promise;

use super::{
    address::{is_commit, is_plain_path},
    fault::Fault,
};
use crate::json;

/// Larger than any file that a disk of this box could hold.
const LARGEST_FILE: u64 = 1 << 52;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) size: u64,
    pub(crate) promise: Promise,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: String,
    lfs: Option<RawLfs>,
}

#[derive(Deserialize)]
struct RawLfs {
    oid: String,
    size: u64,
}

/// What the hub says of a revision.
#[derive(Debug, Deserialize)]
struct RawRevision {
    sha: String,
    #[serde(default, deserialize_with = "json::truth_or_text")]
    gated: Option<bool>,
    #[serde(default)]
    disabled: bool,
}

/// A revision.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Revision {
    pub(crate) commit: String,
    pub(crate) gated: Option<bool>,
    pub(crate) disabled: bool,
}

/// Reads the answer about a revision.
pub(crate) fn revision(body: &[u8]) -> Result<Revision, Fault> {
    let raw: RawRevision =
        serde_json::from_slice(body).map_err(|cause| Fault::Malformed { what: format!("the answer about a revision ({cause})") })?;
    if !is_commit(&raw.sha) {
        return Err(Fault::Malformed { what: "the answer about a revision names no commit".to_owned() });
    }
    Ok(Revision { commit: raw.sha.to_ascii_lowercase(), gated: raw.gated, disabled: raw.disabled })
}

/// Reads one page of a tree, with at most `room` files in it. Entries with names that could leave a folder, or without a sound checksum, are
/// passed over.
pub(crate) fn page(body: &[u8], room: usize) -> Result<Vec<Entry>, Fault> {
    let mut from = serde_json::Deserializer::from_slice(body);
    let files = from.deserialize_seq(Files { room }).and_then(|files| from.end().map(|()| files));
    let (entries, more) = files.map_err(|cause| Fault::Malformed { what: format!("a list of files ({cause})") })?;
    if more {
        return Err(Fault::TooMany { what: "files".to_owned(), limit: room });
    }
    match entries.iter().find(|entry| entry.size > LARGEST_FILE) {
        Some(absurd) => Err(Fault::Malformed { what: format!("a list of files ({} is {} bytes long)", absurd.path, absurd.size) }),
        None => Ok(entries),
    }
}

struct Files {
    room: usize,
}

impl<'de> Visitor<'de> for Files {
    /// The files, and whether there are more.
    type Value = (Vec<Entry>, bool);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of files")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while let Some(raw) = list.next_element::<Raw>()? {
            let Some(entry) = entry(raw) else { continue };
            if kept.len() >= self.room {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                return Ok((kept, true));
            }
            kept.push(entry);
        }
        Ok((kept, false))
    }
}

fn entry(raw: Raw) -> Option<Entry> {
    let hex = |text: &str, length: usize| text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit());
    let (size, promise) = match raw.lfs {
        Some(lfs) if hex(&lfs.oid, 64) => (lfs.size, Promise::Sha256(lfs.oid.to_ascii_lowercase())),
        None if hex(&raw.oid, 40) => (raw.size, Promise::GitBlob(raw.oid.to_ascii_lowercase())),
        _ => return None,
    };
    (raw.kind == "file" && is_plain_path(&raw.path)).then_some(Entry { path: raw.path, size, promise })
}

/// The next page, when there is one and it is at the same origin.
pub(crate) fn next_page(at: &Uri, headers: &HeaderMap) -> Option<Uri> {
    let link = headers.get(header::LINK)?.to_str().ok()?;
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let text = next.split_once('<')?.1.split_once('>')?.0;
    let text = if text.starts_with('/') { format!("{}://{}{text}", at.scheme_str()?, at.authority()?) } else { text.to_owned() };
    let next: Uri = text.parse().ok()?;
    (super::client::origin_of(&next) == super::client::origin_of(at)).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_with_their_promises_and_strange_names_are_passed_over() {
        let sha = "ab".repeat(32);
        let body = format!(
            r#"[{{"type":"directory","path":"d","oid":"{0}","size":0}},
            {{"type":"file","path":"a.gguf","size":134,"oid":"{0}","lfs":{{"oid":"{sha}","size":9000000000,"pointerSize":134}},"xetHash":"x"}},
            {{"type":"file","path":"config.json","size":7,"oid":"{0}"}},
            {{"type":"file","path":"../evil","size":7,"oid":"{0}"}},
            {{"type":"file","path":"odd","size":7,"oid":"zz"}}]"#,
            "0123456789abcdef0123456789abcdef01234567"
        );
        let entries = page(body.as_bytes(), 2).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].size, &entries[0].promise), (9_000_000_000, &Promise::Sha256(sha)));
        assert!(matches!(entries[1].promise, Promise::GitBlob(_)));
        assert!(matches!(page(b"<html>", 2), Err(Fault::Malformed { .. })));
        assert_eq!(page(body.as_bytes(), 1), Err(Fault::TooMany { what: "files".to_owned(), limit: 1 }));
        let absurd = body.replace("9000000000", "18446744073709551615");
        assert!(matches!(page(absurd.as_bytes(), 9), Err(Fault::Malformed { what }) if what.contains("a.gguf")));
    }

    #[test]
    fn pages_are_followed_at_the_same_host_only() {
        let at: Uri = "https://hub/api/models/a/b/tree/c".parse().unwrap();
        let link = |text: &str| next_page(&at, &[(header::LINK, text.parse().unwrap())].into_iter().collect());
        assert_eq!(link(r#"<https://hub/api/x?cursor=2>; rel="next""#).unwrap().to_string(), "https://hub/api/x?cursor=2");
        assert_eq!(link(r#"</api/x?cursor=2>; rel="next""#).unwrap().to_string(), "https://hub/api/x?cursor=2");
        assert_eq!(link(r#"<https://evil/api/x>; rel="next""#), None);
        assert_eq!(link(r#"<https://hub/x>; rel="prev""#), None);
    }

    #[test]
    fn a_revision_must_name_a_commit() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let read = revision(format!(r#"{{"sha":"{commit}","gated":"manual","private":false,"disabled":false}}"#).as_bytes()).unwrap();
        assert_eq!(read, Revision { commit: commit.to_owned(), gated: Some(true), disabled: false });
        assert!(revision(br#"{"sha":"../../x"}"#).is_err());
        let gated = |word: &str| revision(format!(r#"{{"sha":"{commit}","gated":{word}}}"#).as_bytes()).unwrap().gated;
        assert_eq!(
            [gated("false"), gated("true"), gated("\"auto\""), gated("null"), gated("[[1]]")],
            [Some(false), Some(true), Some(true), None, None]
        );
    }
}
