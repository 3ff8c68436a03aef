//! HTTP/1.1 by hand: what came, byte for byte, and whether it ended as it should. A client that leaves, stalls or sends a body in its own time.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;
use warden_domain::clock;

/// A request on its way, on a connection of its own.
pub struct Raw {
    stream: TcpStream,
    sent: Instant,
    seen: Vec<u8>,
    over: bool,
}

/// What came of an answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// 0: no head came.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body without its framing.
    pub body: Vec<u8>,
    /// It ended as its framing says; false: the connection was cut, or nothing more came in time.
    pub clean: bool,
    /// Since the request was sent.
    pub took: Duration,
}

/// Seconds since 1970, as the scripted engine notes them.
pub fn now() -> f64 {
    clock::now().as_microsecond() as f64 / 1e6
}

impl Raw {
    /// Posts a JSON body.
    pub fn post(port: u16, path: &str, key: &str, body: &[u8]) -> Result<Self, String> {
        let mut raw = Self::send(port, format!("{}content-length: {}\r\n\r\n", head("POST", path, key), body.len()).as_bytes())?;
        raw.write(body)?;
        raw.sent = Instant::now();
        Ok(raw)
    }

    /// Sends these bytes on a fresh connection.
    pub fn send(port: u16, bytes: &[u8]) -> Result<Self, String> {
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|e| format!("no connection to the agent: {e}"))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let mut raw = Self { stream, sent: Instant::now(), seen: Vec::new(), over: false };
        raw.write(bytes)?;
        Ok(raw)
    }

    /// Sends more.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|e| format!("the agent takes no more bytes: {e}"))
    }

    /// What came so far, framing included.
    pub fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Reads what comes until `limit`; false: nothing more will come.
    fn more(&mut self, limit: Duration) -> bool {
        let mut piece = [0; 64 * 1024];
        let waited = self.stream.set_read_timeout(Some(limit.max(Duration::from_millis(1))));
        match waited.and_then(|()| self.stream.read(&mut piece)) {
            Ok(n) if n > 0 => self.seen.extend_from_slice(&piece[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            _ => self.over = true,
        }
        !self.over
    }

    /// Waits until this came; how long after the request.
    pub fn until(&mut self, text: &str, limit: Duration) -> Result<Duration, String> {
        let end = Instant::now() + limit;
        while !self.seen.windows(text.len()).any(|w| w == text.as_bytes()) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.more(left) {
                return Err(format!("{text:?} did not come within {} s, but: {}", limit.as_secs_f32(), short(&self.seen())));
            }
        }
        Ok(self.sent.elapsed())
    }

    /// Reads to the end of this answer, whatever end that is, and gives the connection back.
    pub fn answer(mut self, limit: Duration) -> (Answer, Self) {
        let end = Instant::now() + limit;
        loop {
            let (mut answer, used) = parse(&self.seen);
            let left = end.saturating_duration_since(Instant::now());
            if answer.clean || left.is_zero() || !self.more(left) {
                answer.took = self.sent.elapsed();
                self.seen.drain(..used.min(self.seen.len()));
                return (answer, self);
            }
        }
    }

    /// Reads to the end and closes.
    pub fn end(self, limit: Duration) -> Answer {
        self.answer(limit).0
    }

    /// Another request on the same connection.
    pub fn again(mut self, bytes: &[u8]) -> Result<Self, String> {
        self.sent = Instant::now();
        self.write(bytes)?;
        Ok(self)
    }

    /// Whether an answer has begun, without waiting for it.
    pub fn began(&mut self) -> bool {
        self.more(Duration::from_millis(1));
        !self.seen.is_empty()
    }

    /// The client leaves: the moment, in seconds since 1970.
    pub fn leave(self) -> f64 {
        let at = now();
        let _closed_already = self.stream.shutdown(Shutdown::Both);
        at
    }
}

/// The head of a request but for its last lines.
pub fn head(method: &str, path: &str, key: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n")
}

/// What these bytes hold of an answer, and how many of them belong to it.
fn parse(seen: &[u8]) -> (Answer, usize) {
    let Some(end) = seen.windows(4).position(|w| w == b"\r\n\r\n") else { return (Answer::default(), 0) };
    let text = String::from_utf8_lossy(&seen[..end]).into_owned();
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|first| first.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
    let headers: Vec<(String, String)> =
        lines.filter_map(|line| line.split_once(':')).map(|(n, v)| (n.trim().to_lowercase(), v.trim().to_owned())).collect();
    let mut answer = Answer { status, headers, ..Answer::default() };
    let rest = &seen[end + 4..];
    if answer.header("transfer-encoding") == Some("chunked") {
        let (body, used, clean) = chunks(rest);
        (answer.body, answer.clean) = (body, clean);
        return (answer, end + 4 + used);
    }
    let length = answer.header("content-length").and_then(|v| v.parse::<usize>().ok()).unwrap_or(0);
    let have = rest.len().min(length);
    (answer.body, answer.clean) = (rest[..have].to_vec(), have == length);
    (answer, end + 4 + have)
}

/// A chunked body: its bytes, how many of the given ones it took, and whether its end came.
fn chunks(bytes: &[u8]) -> (Vec<u8>, usize, bool) {
    let (mut body, mut at) = (Vec::new(), 0);
    while let Some(line) = bytes[at..].windows(2).position(|w| w == b"\r\n") {
        let size = std::str::from_utf8(&bytes[at..at + line]).ok().and_then(|hex| usize::from_str_radix(hex.trim(), 16).ok());
        let Some(size) = size else { break };
        let from = at + line + 2;
        let have = bytes.len().saturating_sub(from).min(size);
        body.extend_from_slice(&bytes[from..from + have]);
        if bytes.len() < from + size + 2 {
            return (body, bytes.len(), false);
        }
        at = from + size + 2;
        if size == 0 {
            return (body, at, true);
        }
    }
    (body, at, false)
}

impl Answer {
    /// The first header of a name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as a document; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Its events: name (empty: none) and data; `[DONE]` is a string.
    pub fn events(&self) -> Vec<(String, Value)> {
        let text = self.text();
        let blocks = text.split("\n\n").filter(|block| block.contains("data:"));
        let one = |block: &str| {
            let line = |start: &str| block.lines().find_map(|l| l.strip_prefix(start)).map(|rest| rest.trim_start().to_owned());
            let data = line("data:").unwrap_or_default();
            (line("event:").unwrap_or_default(), serde_json::from_str(&data).unwrap_or(Value::String(data)))
        };
        blocks.map(one).collect()
    }

    /// Whether it is a stream of events.
    pub fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    /// Its beginning, for sentences.
    pub fn short(&self) -> String {
        format!("{} {}", self.status, short(&self.text()))
    }
}

fn short(text: &str) -> String {
    text.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_answer_is_told_from_a_whole_one() {
        let whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nHTTP/1.1";
        let (answer, used) = parse(whole);
        assert!(answer.clean && answer.body == b"abc" && &whole[used..] == b"HTTP/1.1");
        for end in 0..whole.len() - 9 {
            assert!(!parse(&whole[..end]).0.clean, "{end}");
        }
        let (plain, _) = parse(b"HTTP/1.1 413 X\r\ncontent-length: 2\r\n\r\nhi");
        assert!(plain.clean && plain.status == 413 && plain.text() == "hi");
        assert!(!parse(b"HTTP/1.1 200 X\r\ncontent-length: 3\r\n\r\nhi").0.clean);
    }

    #[test]
    fn events_are_read_with_and_without_names() {
        let answer = Answer { body: b": hi\n\nevent: a\ndata: {\"x\":1}\n\ndata: [DONE]\n\n".to_vec(), ..Answer::default() };
        assert_eq!(answer.events(), [("a".to_owned(), serde_json::json!({"x": 1})), (String::new(), Value::from("[DONE]"))]);
    }
}
