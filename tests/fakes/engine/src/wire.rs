//! HTTP/1.1 by hand, so that an answer can break off at any byte and a client that leaves is noticed at once.

use std::{collections::BTreeMap, time::Duration};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::notes::End;

/// Longest head that is read.
const LONGEST_HEAD: usize = 64 * 1024;

/// A request, read whole.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `GET`, `POST`…
    pub method: String,
    /// Path without its query.
    pub path: String,
    /// The query, without `?`.
    pub query: String,
    /// Headers, names in lower case; of one that is said twice the last.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
}

/// One connection.
pub struct Wire<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    ahead: Vec<u8>,
    /// The connection is cut when so many bytes of the present answer's body are out.
    pub cut_after_bytes: Option<u64>,
    /// The same after so many pieces.
    pub cut_after_events: Option<u64>,
    /// Bytes of the present answer's body that left.
    pub bytes: u64,
    /// Its pieces that left.
    pub events: u64,
    /// The engine is to end so.
    pub dies: Option<i32>,
}

impl<S: AsyncRead + AsyncWrite> Wire<S> {
    /// Over a stream.
    pub fn new(stream: S) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self { reader, writer, ahead: Vec::new(), cut_after_bytes: None, cut_after_events: None, bytes: 0, events: 0, dies: None }
    }

    /// The next request; `None`: there is none any more, or it cannot be read.
    pub async fn request(&mut self) -> Option<Request> {
        (self.cut_after_bytes, self.cut_after_events, self.bytes, self.events) = (None, None, 0, 0);
        let end = loop {
            if let Some(at) = self.ahead.windows(4).position(|w| w == b"\r\n\r\n") {
                break at;
            }
            if self.ahead.len() > LONGEST_HEAD || self.more().await == 0 {
                return None;
            }
        };
        let head = String::from_utf8_lossy(&self.ahead[..end]).into_owned();
        let mut request = head_of(&head)?;
        let length: usize = request.headers.get("content-length").map_or(Some(0), |value| value.parse().ok())?;
        while self.ahead.len() < end + 4 + length {
            if self.more().await == 0 {
                return None;
            }
        }
        request.body = self.ahead[end + 4..end + 4 + length].to_vec();
        self.ahead.drain(..end + 4 + length);
        Some(request)
    }

    async fn more(&mut self) -> usize {
        self.ahead.reserve(64 * 1024);
        self.reader.read_buf(&mut self.ahead).await.unwrap_or(0)
    }

    /// Does something that is given up when the client leaves meanwhile.
    pub async fn unless_gone<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        let (reader, ahead) = (&mut self.reader, &mut self.ahead);
        let gone = async {
            // What it sends meanwhile is its next request.
            while reader.read_buf(ahead).await.is_ok_and(|n| n > 0) {}
        };
        tokio::select! {
            biased;
            () = gone => Err(End::ClientGone),
            done = work => Ok(done),
        }
    }

    /// Silence.
    pub async fn pause(&mut self, ms: u64) -> Result<(), End> {
        if ms == 0 {
            return Ok(());
        }
        self.unless_gone(tokio::time::sleep(Duration::from_millis(ms))).await
    }

    /// Bytes that are no part of a body.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), End> {
        let (reader, ahead, writer) = (&mut self.reader, &mut self.ahead, &mut self.writer);
        let gone = async { while reader.read_buf(ahead).await.is_ok_and(|n| n > 0) {} };
        tokio::select! {
            biased;
            () = gone => Err(End::ClientGone),
            sent = async { writer.write_all(bytes).await?; writer.flush().await } => sent.map_err(|_| End::ClientGone),
        }
    }

    /// Bytes of a body, as a chunk of their own when `chunked`; cut off where the script says.
    pub async fn body(&mut self, bytes: &[u8], chunked: bool) -> Result<(), End> {
        let left = self.cut_after_bytes.map_or(usize::MAX, |cut| usize::try_from(cut.saturating_sub(self.bytes)).unwrap_or(usize::MAX));
        let part = &bytes[..bytes.len().min(left)];
        if !part.is_empty() {
            if chunked {
                let mut chunk = format!("{:x}\r\n", part.len()).into_bytes();
                chunk.extend_from_slice(part);
                chunk.extend_from_slice(b"\r\n");
                self.send(&chunk).await?;
            } else {
                self.send(part).await?;
            }
            self.bytes += part.len() as u64;
        }
        if part.len() < bytes.len() || self.cut_after_bytes == Some(self.bytes) {
            return Err(End::Cut);
        }
        self.events += 1;
        if self.cut_after_events == Some(self.events) { Err(End::Cut) } else { Ok(()) }
    }
}

fn head_of(head: &str) -> Option<Request> {
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers = lines.filter_map(|line| line.split_once(':')).map(|(n, v)| (n.trim().to_lowercase(), v.trim().to_owned())).collect();
    Some(Request { method, path: path.to_owned(), query: query.to_owned(), headers, body: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_come_one_after_the_other_and_a_body_is_cut_where_it_is_told() {
        let (client, server) = tokio::io::duplex(1024);
        let mut wire = Wire::new(server);
        let (mut reader, mut writer) = tokio::io::split(client);
        writer.write_all(b"POST /a?b=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhiGET /c HTTP/1.1\r\n\r\n").await.unwrap();
        let first = wire.request().await.unwrap();
        assert_eq!(
            (first.path.as_str(), first.query.as_str(), first.body.as_slice(), first.headers["host"].as_str()),
            ("/a", "b=1", b"hi".as_slice(), "x")
        );
        assert_eq!(wire.request().await.unwrap().path, "/c");
        wire.cut_after_bytes = Some(5);
        assert_eq!(wire.body(b"abc", true).await, Ok(()));
        assert_eq!(wire.body(b"def", true).await, Err(End::Cut));
        let mut seen = [0; 64];
        let n = reader.read(&mut seen).await.unwrap();
        assert_eq!(&seen[..n], b"3\r\nabc\r\n2\r\nde\r\n");
        drop((reader, writer));
        assert_eq!(wire.pause(60_000).await, Err(End::ClientGone));
    }
}
