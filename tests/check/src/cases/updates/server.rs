//! A static web server for channels that can be told to misbehave.
//!
//! In: a folder and, for a part of a path, a fault. Out: files over HTTP/1.1 with ranges and entity tags, as any static server gives them;
//! and the list of what was asked for and how many bytes went out. It listens on loopback, which a guest reaches as 10.0.2.2. It ends with
//! its handle.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::Linger};

use crate::log::CaseLog;

/// The host as a guest sees it.
pub const HOST: &str = "10.0.2.2";
const CHUNK: usize = 64 * 1024;

/// How an answer goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection closes in order after so many bytes of the body.
    CutAfter(u64),
    /// The connection is reset after so many bytes of the body.
    ResetAfter(u64),
    /// So many bytes per second.
    Drip(u64),
    /// No length is said, and the body never ends.
    Endless,
    /// The byte at this place of the file is another one.
    WrongByte(u64),
    /// A range is answered with the whole file.
    IgnoresRange,
    /// This status and no file.
    Status(u16),
}

/// A request that came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its path.
    pub path: String,
    /// Its `Range` header.
    pub range: Option<String>,
    /// The status it was answered with.
    pub status: u16,
    /// Bytes of the body that were sent.
    pub sent: u64,
    /// How long it took.
    pub took: Duration,
}

struct Rule {
    part: String,
    fault: Fault,
    times: u32,
}

struct State {
    folder: PathBuf,
    rules: Vec<Rule>,
    asked: Vec<Asked>,
}

/// The running server.
pub struct ChannelServer {
    port: u16,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
}

impl ChannelServer {
    /// Serves a folder on a free port of loopback.
    ///
    /// # Errors
    /// A sentence when there is no port.
    pub fn start(folder: &Path, log: &CaseLog) -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no port for the channel server: {e}"))?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let state = Arc::new(Mutex::new(State { folder: folder.to_owned(), rules: Vec::new(), asked: Vec::new() }));
        let stop = Arc::new(AtomicBool::new(false));
        let (kept, ending, log) = (state.clone(), stop.clone(), log.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ending.load(Ordering::Relaxed) {
                    return;
                }
                let (kept, ending, log) = (kept.clone(), ending.clone(), log.clone());
                std::thread::spawn(move || {
                    if let Err(why) = serve(stream, &kept, &ending, &log) {
                        log.line(format!("channel server: {why}"));
                    }
                });
            }
        });
        Ok(Self { port, state, stop })
    }

    /// Its address for this machine.
    #[must_use]
    pub fn here(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its address for a guest.
    #[must_use]
    pub fn for_guest(&self) -> String {
        format!("http://{HOST}:{}", self.port)
    }

    /// Answers for paths that contain `part` go wrong from now on, `times` times.
    pub fn fault(&self, part: &str, fault: Fault, times: u32) {
        self.lock().rules.push(Rule { part: part.to_owned(), fault, times });
    }

    /// Everything goes right again.
    pub fn mend(&self) {
        self.lock().rules.clear();
    }

    /// What was asked for since the last call.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.lock().asked)
    }

    /// What was asked for so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.lock().asked.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ChannelServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // One last visitor, so that the listener's thread sees that it is over.
        let _gone_already = TcpStream::connect(("127.0.0.1", self.port));
    }
}

struct Request {
    head_only: bool,
    path: String,
    range: Option<String>,
    if_range: Option<String>,
}

fn read_request(stream: &TcpStream) -> std::io::Result<Option<Request>> {
    let mut reader = BufReader::new(stream.take(16 * 1024));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let mut request = Request { head_only: method == "HEAD", path: path.to_owned(), range: None, if_range: None };
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            return Ok(Some(request));
        }
        let Some((name, value)) = header.split_once(':') else { continue };
        let slot = match name.to_ascii_lowercase().as_str() {
            "range" => &mut request.range,
            "if-range" => &mut request.if_range,
            _ => continue,
        };
        *slot = Some(value.trim().to_owned());
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>, ending: &AtomicBool, log: &CaseLog) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.set_write_timeout(Some(Duration::from_secs(60)))?;
    let Some(request) = read_request(&stream)? else { return Ok(()) };
    let began = Instant::now();
    let path = request.path.split('?').next().unwrap_or_default().to_owned();
    let (file, fault) = {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let file = state.folder.join(path.trim_start_matches('/'));
        let rule = state.rules.iter_mut().find(|rule| rule.times > 0 && path.contains(&rule.part));
        let fault = rule.map(|rule| {
            rule.times -= 1;
            rule.fault
        });
        (file, fault)
    };
    let mut asked = Asked { path: path.clone(), range: request.range.clone(), status: 0, sent: 0, took: Duration::ZERO };
    let result = answer(&mut stream, &request, &file, fault, ending, &mut asked);
    asked.took = began.elapsed();
    log.line(format!("channel server: {path} {:?} {fault:?} -> {} {} bytes", asked.range, asked.status, asked.sent));
    state.lock().unwrap_or_else(PoisonError::into_inner).asked.push(asked);
    result
}

fn answer(
    stream: &mut TcpStream,
    request: &Request,
    path: &Path,
    fault: Option<Fault>,
    ending: &AtomicBool,
    asked: &mut Asked,
) -> std::io::Result<()> {
    if let Some(Fault::Status(status)) = fault {
        asked.status = status;
        return write!(stream, "HTTP/1.1 {status} As Told\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
    let plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    let Some(mut file) = plain.then(|| File::open(path).ok()).flatten() else {
        asked.status = 404;
        return write!(stream, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    };
    let length = file.metadata()?.len();
    let tag = format!("\"{length:x}-{}\"", path.file_name().unwrap_or_default().to_string_lossy());
    let wanted = request.range.as_deref().filter(|_| request.if_range.as_ref().is_none_or(|known| *known == tag));
    let range = wanted.filter(|_| fault != Some(Fault::IgnoresRange)).and_then(|range| parse_range(range, length));
    let (status, first, last) = match range {
        Some(Range::Part(first, last)) => (206, first, last),
        Some(Range::Beyond) => {
            asked.status = 416;
            return write!(stream, "HTTP/1.1 416 Range\r\ncontent-range: bytes */{length}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
        None => (200, 0, length),
    };
    asked.status = status;
    let mut head = format!("HTTP/1.1 {status} OK\r\naccept-ranges: bytes\r\netag: {tag}\r\nconnection: close\r\n");
    if status == 206 {
        head.push_str(&format!("content-range: bytes {first}-{}/{length}\r\n", last - 1));
    }
    if fault != Some(Fault::Endless) {
        head.push_str(&format!("content-length: {}\r\n", last - first));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    if request.head_only {
        return Ok(());
    }
    file.seek(SeekFrom::Start(first))?;
    send(stream, &mut file, first, last - first, fault, ending, asked)
}

fn send(
    stream: &mut TcpStream,
    file: &mut File,
    first: u64,
    length: u64,
    fault: Option<Fault>,
    ending: &AtomicBool,
    asked: &mut Asked,
) -> std::io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    let stop_at = match fault {
        Some(Fault::CutAfter(bytes) | Fault::ResetAfter(bytes)) => bytes.min(length),
        _ => length,
    };
    while asked.sent < stop_at && !ending.load(Ordering::Relaxed) {
        let room = usize::try_from(stop_at - asked.sent).unwrap_or(CHUNK).min(CHUNK);
        let room = if let Some(Fault::Drip(rate)) = fault { room.min(usize::try_from(rate).unwrap_or(1).max(1)) } else { room };
        let slot = &mut buffer[..room];
        file.read_exact(slot)?;
        if let Some(Fault::WrongByte(place)) = fault
            && let Some(at) = place.checked_sub(first + asked.sent).and_then(|at| usize::try_from(at).ok())
            && let Some(byte) = slot.get_mut(at)
        {
            *byte ^= 0x40;
        }
        stream.write_all(slot)?;
        asked.sent += room as u64;
        if matches!(fault, Some(Fault::Drip(_))) {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    match fault {
        Some(Fault::ResetAfter(_)) => {
            // Without lingering the kernel answers with a reset instead of an orderly end.
            setsockopt(stream, Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 }).map_err(std::io::Error::from)?;
        }
        Some(Fault::Endless) => {
            buffer.fill(0x41);
            while !ending.load(Ordering::Relaxed) {
                stream.write_all(&buffer)?;
                asked.sent += CHUNK as u64;
            }
        }
        _ => {}
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    /// From the first byte to before the last.
    Part(u64, u64),
    /// Behind the end.
    Beyond,
}

/// One range of bytes; anything else is answered with the whole file, as the standard allows.
fn parse_range(text: &str, length: u64) -> Option<Range> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let first: u64 = first.parse().ok()?;
    if first >= length {
        return Some(Range::Beyond);
    }
    let last = if last.is_empty() { length } else { last.parse::<u64>().ok()?.saturating_add(1).min(length) };
    (last > first).then_some(Range::Part(first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(server: &ChannelServer, headers: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        write!(stream, "GET /f HTTP/1.1\r\nhost: x\r\n{headers}\r\n").unwrap();
        let mut all = Vec::new();
        let _a_reset_is_what_some_ask_for = stream.read_to_end(&mut all);
        let at = all.windows(4).position(|w| w == b"\r\n\r\n").map_or(all.len(), |at| at + 4);
        let body = all.split_off(at);
        (String::from_utf8(all).unwrap(), body)
    }

    fn served() -> (tempfile::TempDir, ChannelServer) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), (0..200u8).collect::<Vec<_>>()).unwrap();
        let log = CaseLog::create(dir.path(), "t").unwrap();
        let server = ChannelServer::start(dir.path(), &log).unwrap();
        (dir, server)
    }

    #[test]
    fn ranges_are_given_as_a_static_server_gives_them() {
        let (_dir, server) = served();
        let (head, body) = get(&server, "range: bytes=10-\r\n");
        assert!(head.starts_with("HTTP/1.1 206") && head.contains("content-range: bytes 10-199/200"), "{head}");
        assert_eq!(body, (10..200u8).collect::<Vec<_>>());
        let (head, body) = get(&server, "range: bytes=10-\r\nif-range: \"other\"\r\n");
        assert!(head.starts_with("HTTP/1.1 200") && body.len() == 200, "{head}");
        assert!(get(&server, "range: bytes=200-\r\n").0.starts_with("HTTP/1.1 416"));
        assert_eq!(parse_range("bytes=0-0", 5), Some(Range::Part(0, 1)));
        assert_eq!(parse_range("bytes=-5", 5), None);
    }

    #[test]
    fn faults_do_what_they_are_called() {
        let (_dir, server) = served();
        server.fault("f", Fault::CutAfter(50), 1);
        assert_eq!(get(&server, "").1.len(), 50);
        server.fault("f", Fault::WrongByte(20), 1);
        assert_eq!(get(&server, "range: bytes=15-\r\n").1[5], 20 ^ 0x40);
        server.fault("f", Fault::IgnoresRange, 1);
        assert_eq!(get(&server, "range: bytes=15-\r\n").1.len(), 200);
        server.fault("f", Fault::Status(503), 1);
        assert!(get(&server, "").0.starts_with("HTTP/1.1 503"));
        assert_eq!(get(&server, "").1.len(), 200, "each fault counts as often as was said");
        let asked = server.take_asked();
        assert_eq!(asked.iter().map(|a| a.sent).collect::<Vec<_>>(), [50, 185, 200, 0, 200]);
    }
}
