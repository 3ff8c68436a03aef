//! A small hub on loopback that can be told to misbehave, and the storage server it sends large files to.
//!
//! In: repositories (files, and who may have them) and, for a part of a path, a fault. Out: the calls a real hub answers, over HTTP/1.1:
//! revisions, trees in pages, files with ranges and redirects; and a list of what was asked for, with which token. It ends with its handle.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::Linger};
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::log::CaseLog;

/// Every repository is at this commit.
pub const COMMIT: &str = "00112233445566778899aabbccddeeff00112233";
/// The token of an account that accepted every term.
pub const TOKEN: &str = "hf_sentinelOfThisCase";
const CHUNK: usize = 64 * 1024;

/// How an answer goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection closes in order after so many bytes of the body.
    CutAfter(u64),
    /// The connection is reset after so many bytes of the body.
    ResetAfter(u64),
    /// After so many bytes nothing more comes, and the connection stays open.
    StallAfter(u64),
    /// So many bytes per second.
    Drip(u64),
    /// The byte at this place of the file is another one.
    WrongByte(u64),
    /// A range is answered with the whole file.
    IgnoresRange,
    /// Another checksum is promised.
    OtherTag,
    /// This status, with these headers and no file.
    Status(u16, Vec<(&'static str, &'static str)>),
}

/// A file of a repository.
#[derive(Clone)]
pub struct Held {
    content: Arc<Vec<u8>>,
    /// Said in the tree instead of the content's own size.
    claimed: Option<u64>,
    large: bool,
}

impl Held {
    /// A large file, kept by checksum on the storage server.
    #[must_use]
    pub fn large(content: Vec<u8>) -> Self {
        Self { content: Arc::new(content), claimed: None, large: true }
    }

    /// A small file, kept in the repository itself.
    #[must_use]
    pub fn small(content: &str) -> Self {
        Self { content: Arc::new(content.as_bytes().to_vec()), claimed: None, large: false }
    }

    /// A large file of a size that nobody has.
    #[must_use]
    pub fn claiming(size: u64) -> Self {
        Self { content: Arc::new(b"GGUF".to_vec()), claimed: Some(size), large: true }
    }

    fn sha256(&self) -> String {
        hex::encode(Sha256::digest(self.content.as_slice()))
    }

    fn blob(&self) -> String {
        let mut hash = Sha1::new();
        hash.update(format!("blob {}\0", self.content.len()).as_bytes());
        hash.update(self.content.as_slice());
        hex::encode(hash.finalize())
    }

    fn entry(&self, path: &str) -> Value {
        let size = self.claimed.unwrap_or(self.content.len() as u64);
        if self.large {
            json!({"type": "file", "path": path, "oid": "0".repeat(40), "size": 134, "lfs": {"oid": self.sha256(), "size": size, "pointerSize": 134}})
        } else {
            json!({"type": "file", "path": path, "oid": self.blob(), "size": size})
        }
    }
}

/// Who may have a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Everybody.
    Open,
    /// Those with the token.
    Gated,
    /// Nobody: its list is shown, its files are switched off.
    Disabled,
}

/// A repository.
#[derive(Clone)]
pub struct Repository {
    /// Its files by path.
    pub files: BTreeMap<String, Held>,
    /// Who may have it.
    pub gate: Gate,
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its path with its query.
    pub path: String,
    /// Its `Range` header.
    pub range: Option<String>,
    /// Its `Authorization` header.
    pub authorization: Option<String>,
    /// True when the storage server was asked.
    pub storage: bool,
    /// The status it was answered with.
    pub status: u16,
    /// Bytes of the body that were sent.
    pub sent: u64,
    /// When it came.
    pub at: Instant,
}

impl Asked {
    /// The first byte of its range; 0 without one.
    #[must_use]
    pub fn from(&self) -> u64 {
        let first = self.range.as_deref().and_then(|range| range.strip_prefix("bytes=")?.split('-').next()?.parse().ok());
        first.unwrap_or(0)
    }
}

struct Rule {
    part: String,
    fault: Fault,
    times: u32,
    skip: u32,
}

#[derive(Default)]
struct State {
    repositories: BTreeMap<String, Repository>,
    rules: Vec<Rule>,
    asked: Vec<Asked>,
}

/// The running hub.
pub struct FakeHub {
    port: u16,
    storage_port: u16,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
}

/// What a connection needs.
#[derive(Clone)]
struct Desk {
    port: u16,
    storage_port: u16,
    storage: bool,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    log: CaseLog,
}

impl FakeHub {
    /// A hub without repositories on two free ports of loopback.
    ///
    /// # Errors
    /// A sentence when there is no port.
    pub fn start(log: &CaseLog) -> Result<Self, String> {
        let listen = || TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no port for the hub: {e}"));
        let (hub, storage) = (listen()?, listen()?);
        let port_of = |listener: &TcpListener| listener.local_addr().map(|a| a.port()).map_err(|e| e.to_string());
        let (port, storage_port) = (port_of(&hub)?, port_of(&storage)?);
        let (state, stop) = (Arc::<Mutex<State>>::default(), Arc::new(AtomicBool::new(false)));
        for (listener, storage) in [(hub, false), (storage, true)] {
            let desk = Desk { port, storage_port, storage, state: state.clone(), stop: stop.clone(), log: log.clone() };
            std::thread::spawn(move || desk.listen(&listener));
        }
        Ok(Self { port, storage_port, state, stop })
    }

    /// Its address.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Adds a repository.
    pub fn add(&self, name: &str, gate: Gate, files: Vec<(&str, Held)>) {
        let files = files.into_iter().map(|(path, held)| (path.to_owned(), held)).collect();
        self.lock().repositories.insert(name.to_owned(), Repository { files, gate });
    }

    /// Answers for paths that contain `part` go wrong: `times` times, after `skip` that go right.
    pub fn fault(&self, part: &str, fault: Fault, skip: u32, times: u32) {
        self.lock().rules.push(Rule { part: part.to_owned(), fault, times, skip });
    }

    /// Everything goes right again.
    pub fn mend(&self) {
        self.lock().rules.clear();
    }

    /// What was asked for since the last call.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.lock().asked)
    }

    /// What was asked for so far of paths that contain `part`.
    #[must_use]
    pub fn asked(&self, part: &str) -> Vec<Asked> {
        self.lock().asked.iter().filter(|asked| asked.path.contains(part)).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // One last visitor each, so that the listeners' threads see that it is over.
        for port in [self.port, self.storage_port] {
            let _gone_already = TcpStream::connect(("127.0.0.1", port));
        }
    }
}

struct Request {
    path: String,
    range: Option<String>,
    authorization: Option<String>,
}

/// An answer before it is sent.
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Arc<Vec<u8>>,
    first: u64,
    last: u64,
}

impl Answer {
    fn empty(status: u16, headers: &[(&str, &str)]) -> Self {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { status, headers, body: Arc::default(), first: 0, last: 0 }
    }

    fn json(value: &Value) -> Self {
        let body = value.to_string().into_bytes();
        let last = body.len() as u64;
        Self { status: 200, headers: vec![("content-type".to_owned(), "application/json".to_owned())], body: Arc::new(body), first: 0, last }
    }

    fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

impl Desk {
    fn listen(&self, listener: &TcpListener) {
        for stream in listener.incoming().flatten() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let desk = self.clone();
            std::thread::spawn(move || {
                if let Err(why) = desk.serve(stream) {
                    desk.log.line(format!("hub: {why}"));
                }
            });
        }
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_write_timeout(Some(Duration::from_secs(60)))?;
        let Some(request) = read_request(&stream)? else { return Ok(()) };
        let at = Instant::now();
        let fault = self.fault_of(&request.path);
        let answer = match &fault {
            Some(Fault::Status(status, headers)) => Answer::empty(*status, headers),
            _ => self.answer(&request, fault.as_ref()),
        };
        let sent = self.send(&mut stream, &answer, fault.as_ref());
        let (done, sent) = match sent {
            Ok(sent) => (Ok(()), sent),
            Err((why, sent)) => (Err(why), sent),
        };
        let which = if self.storage { "storage" } else { "hub" };
        self.log.line(format!("{which}: {} {:?} {fault:?} -> {} {sent} bytes", request.path, request.range, answer.status));
        let asked = Asked {
            path: request.path,
            range: request.range,
            authorization: request.authorization,
            storage: self.storage,
            status: answer.status,
            sent,
            at,
        };
        self.state.lock().unwrap_or_else(PoisonError::into_inner).asked.push(asked);
        done
    }

    /// Faults of files are those of the server that sends them.
    fn fault_of(&self, path: &str) -> Option<Fault> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Small files come from the hub itself.
        let sends = self.storage || path.contains(".json");
        let rule = state.rules.iter_mut().find(|rule| {
            let here = match rule.fault {
                Fault::Status(..) | Fault::OtherTag => !self.storage,
                _ => sends,
            };
            here && rule.times > 0 && path.contains(&rule.part)
        })?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        rule.times -= 1;
        Some(rule.fault.clone())
    }

    fn answer(&self, request: &Request, fault: Option<&Fault>) -> Answer {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let not_found = |code: &str| Answer::empty(404, &[("x-error-code", code), ("x-request-id", "Root=1-case")]);
        let (api, owner, name, rest) = match parts.as_slice() {
            ["api", "models", owner, name, rest @ ..] => (true, owner, name, rest),
            [owner, name, rest @ ..] => (false, owner, name, rest),
            _ => return not_found("RepoNotFound"),
        };
        let repository = self.state.lock().unwrap_or_else(PoisonError::into_inner).repositories.get(&format!("{owner}/{name}")).cloned();
        let Some(repository) = repository else {
            // Like the real one, it does not tell strangers what exists.
            let status = if request.authorization.is_some() { 404 } else { 401 };
            return Answer::empty(status, &[("x-error-code", "RepoNotFound"), ("x-error-message", "Repository not found")]);
        };
        match (api, rest) {
            (true, ["revision", revision]) if ["main", COMMIT].contains(revision) => {
                let gated = if repository.gate == Gate::Gated { json!("auto") } else { json!(false) };
                Answer::json(&json!({"id": format!("{owner}/{name}"), "sha": COMMIT, "gated": gated, "private": false, "disabled": false}))
            }
            (true, ["revision", ..]) => not_found("RevisionNotFound"),
            (true, ["tree", COMMIT]) => self.tree(&repository, path, query),
            (false, ["resolve", COMMIT, file @ ..]) => self.file(&repository, &file.join("/"), request, fault),
            _ => not_found("EntryNotFound"),
        }
    }

    /// Three entries a page, so that every list has several.
    fn tree(&self, repository: &Repository, path: &str, query: &str) -> Answer {
        let from: usize = query.split('&').find_map(|pair| pair.strip_prefix("cursor=")?.parse().ok()).unwrap_or(0);
        let mut entries = vec![json!({"type": "directory", "path": "sub", "oid": "0".repeat(40), "size": 0})];
        entries.extend(repository.files.iter().map(|(path, held)| held.entry(path)));
        let page: Vec<Value> = entries.iter().skip(from).take(3).cloned().collect();
        let answer = Answer::json(&Value::Array(page));
        if from + 3 >= entries.len() {
            // A next page at another host is no page of this hub.
            return answer.with("link", "<http://127.0.0.2:9/elsewhere>; rel=\"next\"");
        }
        answer.with("link", format!("<http://127.0.0.1:{}{path}?recursive=true&cursor={}>; rel=\"next\"", self.port, from + 3))
    }

    fn file(&self, repository: &Repository, path: &str, request: &Request, fault: Option<&Fault>) -> Answer {
        let path = path.replace("%20", " ");
        let Some(held) = repository.files.get(&path) else { return Answer::empty(404, &[("x-error-code", "EntryNotFound")]) };
        if self.storage {
            return ranged(held, request, fault);
        }
        let allowed = request.authorization.as_deref() == Some(&format!("Bearer {TOKEN}"));
        match repository.gate {
            Gate::Disabled => return Answer::empty(403, &[("x-error-message", "Access to this resource is disabled.")]),
            Gate::Gated if !allowed => {
                let status = if request.authorization.is_some() { 403 } else { 401 };
                return Answer::empty(status, &[("x-error-code", "GatedRepo"), ("x-error-message", "Access to model is restricted.")]);
            }
            _ => {}
        }
        if !held.large {
            return ranged(held, request, fault).with("x-repo-commit", COMMIT).with("etag", format!("\"{}\"", held.blob()));
        }
        let tag = if fault == Some(&Fault::OtherTag) { "f".repeat(64) } else { held.sha256() };
        Answer::empty(302, &[])
            .with("location", format!("http://127.0.0.1:{}{}?signature=secret", self.storage_port, request.path))
            .with("x-repo-commit", COMMIT)
            .with("x-linked-etag", format!("\"{tag}\""))
            .with("x-linked-size", held.content.len().to_string())
    }

    fn send(&self, stream: &mut TcpStream, answer: &Answer, fault: Option<&Fault>) -> Result<u64, (std::io::Error, u64)> {
        let begun = |e: std::io::Error| (e, 0);
        let mut head = format!("HTTP/1.1 {} As Told\r\nconnection: close\r\ncontent-length: {}\r\n", answer.status, answer.last - answer.first);
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).map_err(begun)?;
        let length = answer.last - answer.first;
        let stop_at = match fault {
            Some(Fault::CutAfter(bytes) | Fault::ResetAfter(bytes) | Fault::StallAfter(bytes)) => (*bytes).min(length),
            _ => length,
        };
        let mut sent = 0u64;
        while sent < stop_at && !self.stop.load(Ordering::Relaxed) {
            let room = usize::try_from(stop_at - sent).unwrap_or(CHUNK).min(CHUNK);
            let from = usize::try_from(answer.first + sent).unwrap_or(0);
            let mut piece = answer.body.get(from..from + room).unwrap_or_default().to_vec();
            if let Some(Fault::WrongByte(place)) = fault
                && let Some(at) = place.checked_sub(answer.first + sent).and_then(|at| usize::try_from(at).ok())
                && let Some(byte) = piece.get_mut(at)
            {
                *byte ^= 0x40;
            }
            stream.write_all(&piece).map_err(|e| (e, sent))?;
            sent += room as u64;
            if let Some(Fault::Drip(rate)) = fault {
                std::thread::sleep(Duration::from_micros(CHUNK as u64 * 1_000_000 / (*rate).max(1)));
            }
        }
        if let Some(Fault::StallAfter(_)) = fault {
            // Until the other side gives up.
            let mut nothing = [0u8; 1];
            let _its_end_or_the_time_limit = stream.read(&mut nothing);
        }
        if let Some(Fault::ResetAfter(_)) = fault {
            // Without lingering the kernel answers with a reset instead of an orderly end.
            setsockopt(&*stream, Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 }).map_err(|e| (std::io::Error::from(e), sent))?;
        }
        Ok(sent)
    }
}

fn ranged(held: &Held, request: &Request, fault: Option<&Fault>) -> Answer {
    let length = held.content.len() as u64;
    let range = request.range.as_deref().filter(|_| fault != Some(&Fault::IgnoresRange)).and_then(|range| range.strip_prefix("bytes="));
    let whole = Answer { status: 200, headers: Vec::new(), body: held.content.clone(), first: 0, last: length };
    let Some((first, last)) = range.and_then(|range| range.split_once('-')) else { return whole };
    let Ok(first) = first.parse::<u64>() else { return whole };
    if first >= length {
        return Answer::empty(416, &[]).with("content-range", format!("bytes */{length}"));
    }
    let last = if last.is_empty() { length } else { last.parse::<u64>().unwrap_or(length).saturating_add(1).min(length) };
    let answer = Answer { status: 206, first, last, ..whole };
    answer.with("content-range", format!("bytes {first}-{}/{length}", last - 1))
}

fn read_request(stream: &TcpStream) -> std::io::Result<Option<Request>> {
    let mut reader = BufReader::new(stream.take(16 * 1024));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let Some(path) = line.split_whitespace().nth(1) else { return Ok(None) };
    let mut request = Request { path: path.to_owned(), range: None, authorization: None };
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            return Ok(Some(request));
        }
        let Some((name, value)) = header.split_once(':') else { continue };
        let slot = match name.to_ascii_lowercase().as_str() {
            "range" => &mut request.range,
            "authorization" => &mut request.authorization,
            _ => continue,
        };
        *slot = Some(value.trim().to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(hub: &FakeHub, storage: bool, path: &str, headers: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", if storage { hub.storage_port } else { hub.port })).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n").unwrap();
        let mut all = Vec::new();
        let _a_reset_is_what_some_ask_for = stream.read_to_end(&mut all);
        let at = all.windows(4).position(|w| w == b"\r\n\r\n").map_or(all.len(), |at| at + 4);
        let body = all.split_off(at);
        (String::from_utf8(all).unwrap(), body)
    }

    #[test]
    fn it_answers_as_a_hub_does_and_misbehaves_as_told() {
        let dir = tempfile::tempdir().unwrap();
        let hub = FakeHub::start(&CaseLog::create(dir.path(), "t").unwrap()).unwrap();
        hub.add("a/b", Gate::Gated, vec![("f.gguf", Held::large((0..200u8).collect())), ("config.json", Held::small("{}"))]);
        let file = format!("/a/b/resolve/{COMMIT}/f.gguf");
        assert!(get(&hub, false, &file, "").0.starts_with("HTTP/1.1 401"));
        let (head, _) = get(&hub, false, &file, &format!("authorization: Bearer {TOKEN}\r\n"));
        assert!(head.starts_with("HTTP/1.1 302") && head.contains("x-linked-etag"), "{head}");
        let (head, body) = get(&hub, true, &file, "range: bytes=10-\r\n");
        assert!(head.starts_with("HTTP/1.1 206") && head.contains("content-range: bytes 10-199/200"), "{head}");
        assert_eq!(body, (10..200u8).collect::<Vec<_>>());
        hub.fault("f.gguf", Fault::WrongByte(20), 0, 1);
        assert_eq!(get(&hub, true, &file, "range: bytes=15-\r\n").1[5], 20 ^ 0x40);
        hub.fault("f.gguf", Fault::CutAfter(50), 1, 1);
        assert_eq!(get(&hub, true, &file, "").1.len(), 200);
        assert_eq!(get(&hub, true, &file, "").1.len(), 50);
        assert!(get(&hub, false, "/api/models/a/b/tree/x", "").0.starts_with("HTTP/1.1 404"));
        assert!(get(&hub, false, "/api/models/no/one/revision/main", "").0.starts_with("HTTP/1.1 401"));
    }
}
