//! Fetching one target: from where its verified parts end, with `Range` and `If-Range`, at most so fast and at least so fast, again after a
//! break, until it is whole or somebody cancels.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use warden_trust::{Entry, Pace, Refusal};

use crate::fault::Fault;
use crate::http::{Client, chain};
use crate::writer::Writer;

/// How often somebody looks whether the transfer was cancelled or stands still.
const TICK: Duration = Duration::from_millis(250);

/// The rules of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Fewer bytes than this within `window` ends it.
    pub least: u64,
    /// See `least`.
    pub window: Duration,
    /// The most bytes a second.
    pub limit: Option<u64>,
    /// How often it is begun again without getting any further.
    pub tries: u32,
    /// How long it waits before the second try; doubled each time.
    pub pause: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self { least: 32 << 10, window: Duration::from_secs(30), limit: None, tries: 5, pause: Duration::from_secs(1) }
    }
}

/// Fetches the target into `<folder>/<digest>`. `moved` hears the bytes that are here, often.
pub(crate) async fn download(
    client: &Client,
    uri: &Uri,
    folder: &Path,
    entry: &Entry,
    rules: Rules,
    cancel: &AtomicBool,
    moved: &(dyn Fn(u64) + Send + Sync),
) -> Result<(), Fault> {
    let writer = Writer::open(folder, entry).await?;
    let mut transfer = Transfer { client, uri, entry, rules, cancel, moved, writer: &writer, tag: None };
    let (mut stood, mut failures) = (0, 0);
    loop {
        let at = writer.stand().await?;
        moved(at);
        if at == entry.bytes {
            break;
        }
        // A few bytes for each connection are no way to get on.
        if at >= stood + rules.least.max(1) {
            (stood, failures) = (at, 0);
        }
        let outcome = match transfer.once(at).await {
            Ok(()) => writer.settle().await,
            Err(fault) => Err(writer.settle().await.err().unwrap_or(fault)),
        };
        let Err(fault) = outcome else { continue };
        let again = fault.breaks_off() || matches!(fault, Fault::Refused(Refusal::DamagedPart { .. }));
        failures += 1;
        if !again || failures >= rules.tries {
            return Err(fault);
        }
        tracing::info!(target = %entry.sha256, at, %fault, "a transfer broke off and is taken up again");
        transfer.rest(rules.pause.saturating_mul(1 << (failures - 1).min(5))).await?;
    }
    writer.finish().await
}

struct Transfer<'a> {
    client: &'a Client,
    uri: &'a Uri,
    entry: &'a Entry,
    rules: Rules,
    cancel: &'a AtomicBool,
    moved: &'a (dyn Fn(u64) + Send + Sync),
    writer: &'a Writer,
    /// Names the file's version at the server, so that two versions are never mixed.
    tag: Option<HeaderValue>,
}

impl Transfer<'_> {
    /// One connection: from `at` to the end, or to its break.
    async fn once(&mut self, at: u64) -> Result<(), Fault> {
        self.check_cancel()?;
        let mut headers = HeaderMap::new();
        if at > 0 {
            headers.insert(header::RANGE, HeaderValue::from_str(&format!("bytes={at}-")).unwrap_or(HeaderValue::from_static("bytes=0-")));
            if let Some(tag) = &self.tag {
                headers.insert(header::IF_RANGE, tag.clone());
            }
        }
        let answer = self.client.get(self.uri, &headers).await?;
        self.tag = answer.headers().get(header::ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/")).cloned();
        let begins = begins(&answer, at, self.entry, self.uri)?;
        self.read(answer.into_body(), at - begins).await
    }

    /// Reads a body whose first `skip` bytes are here already.
    async fn read(&self, mut body: Incoming, mut skip: u64) -> Result<(), Fault> {
        let begun = Instant::now();
        let mut got = 0_u64;
        // A limit of ours is no slowness of theirs.
        let least = self.rules.limit.map_or(self.rules.least, |limit| self.rules.least.min(limit.saturating_mul(self.rules.window.as_secs()) / 2));
        let mut pace = Pace::new(least, self.rules.window);
        loop {
            self.check_cancel()?;
            let frame = match tokio::time::timeout(TICK, body.frame()).await {
                Ok(frame) => frame,
                Err(_) => {
                    pace.observe(self.entry, begun.elapsed(), got)?;
                    continue;
                }
            };
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|cause| Fault::BrokeOff { got: self.writer.taken(), cause: chain(&cause) })?;
            let Ok(mut data) = frame.into_data() else { continue };
            got += data.len() as u64;
            let over = usize::try_from(skip).unwrap_or(usize::MAX).min(data.len());
            skip -= over as u64;
            let fresh = data.split_off(over);
            if !fresh.is_empty() {
                self.writer.piece(fresh).await?;
                (self.moved)(self.writer.taken());
            }
            pace.observe(self.entry, begun.elapsed(), got)?;
            self.hold_back(got, begun).await?;
        }
        let at = self.writer.stand().await?;
        if at < self.entry.bytes { Err(Fault::BrokeOff { got: at, cause: "the server ended it early".to_owned() }) } else { Ok(()) }
    }

    /// Sleeps until so many bytes are allowed.
    async fn hold_back(&self, got: u64, begun: Instant) -> Result<(), Fault> {
        let Some(limit) = self.rules.limit.filter(|limit| *limit > 0) else { return Ok(()) };
        let allowed = Duration::from_millis(got.saturating_mul(1000) / limit);
        self.rest(allowed.saturating_sub(begun.elapsed())).await
    }

    async fn rest(&self, time: Duration) -> Result<(), Fault> {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.check_cancel()?;
            tokio::time::sleep(left.min(TICK)).await;
        }
        self.check_cancel()
    }

    fn check_cancel(&self) -> Result<(), Fault> {
        if self.cancel.load(Ordering::Relaxed) { Err(Fault::Cancelled) } else { Ok(()) }
    }
}

/// Where in the file an answer begins. 206 must be the piece that was asked for; 200 is the whole file; 416 means that the server's file is
/// another one.
fn begins<B>(answer: &Response<B>, at: u64, entry: &Entry, uri: &Uri) -> Result<u64, Fault> {
    let text = |name| answer.headers().get(name).and_then(|v: &HeaderValue| v.to_str().ok());
    match answer.status() {
        StatusCode::PARTIAL_CONTENT => {
            let found = text(header::CONTENT_RANGE).unwrap_or("no range");
            let wanted = format!("bytes {at}-{}/", entry.bytes - 1);
            let total = found.strip_prefix(&wanted).is_some_and(|total| total == "*" || total.parse() == Ok(entry.bytes));
            if total { Ok(at) } else { Err(Fault::OtherRange { found: found.chars().filter(|c| !c.is_control()).take(100).collect() }) }
        }
        StatusCode::OK => match text(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok()) {
            Some(length) if length > entry.bytes => Err(Refusal::TooLong { subject: entry.subject(), expected: entry.bytes }.into()),
            Some(length) if length < entry.bytes => Err(Refusal::CutShort { subject: entry.subject(), got: length, expected: entry.bytes }.into()),
            _ => Ok(0),
        },
        StatusCode::RANGE_NOT_SATISFIABLE => Err(Fault::OtherRange { found: "its file is shorter".to_owned() }),
        other => Err(Fault::Status { status: other.as_u16(), path: uri.path().to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use warden_trust::{Digest, Kind, Requires};

    use super::*;

    fn entry() -> Entry {
        Entry {
            kind: Kind::Os,
            name: "x".into(),
            version: "1".into(),
            sha256: Digest::of(b""),
            bytes: 100,
            part_bytes: 65536,
            parts: Vec::new(),
            requires: Requires::default(),
            data_schema: Some(1),
            manifest_hash: None,
            waves: Vec::new(),
            notes: None,
            licence: None,
            source: None,
        }
    }

    fn answer(status: u16, headers: &[(&str, &str)]) -> Result<u64, Fault> {
        let mut made = Response::builder().status(status);
        for (name, value) in headers {
            made = made.header(*name, *value);
        }
        begins(&made.body(()).unwrap(), 40, &entry(), &Uri::from_static("http://x/y"))
    }

    #[test]
    fn an_answer_is_taken_only_where_it_says_it_belongs() {
        assert_eq!(answer(206, &[("content-range", "bytes 40-99/100")]).unwrap(), 40);
        assert_eq!(answer(206, &[("content-range", "bytes 40-99/*")]).unwrap(), 40);
        for bad in ["bytes 0-99/100", "bytes 40-99/101", "bytes 40-98/100", "40-99/100", ""] {
            assert!(matches!(answer(206, &[("content-range", bad)]), Err(Fault::OtherRange { .. })), "{bad}");
        }
        assert_eq!(answer(200, &[]).unwrap(), 0);
        assert_eq!(answer(200, &[("content-length", "100")]).unwrap(), 0);
    }

    #[test]
    fn a_file_of_another_length_is_refused_before_its_first_byte() {
        assert!(matches!(answer(200, &[("content-length", "101")]), Err(Fault::Refused(Refusal::TooLong { .. }))));
        assert!(matches!(answer(200, &[("content-length", "99")]), Err(Fault::Refused(Refusal::CutShort { .. }))));
        assert!(matches!(answer(416, &[]), Err(Fault::OtherRange { .. })));
        assert!(matches!(answer(503, &[]), Err(Fault::Status { status: 503, .. })));
    }
}
