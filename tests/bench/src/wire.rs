//! One HTTP/1.1 connection of the load generator, blocking and bare: a load generator that computes would be measured too.
//!
//! In: a request as bytes. Out: status, moments and length of the answer. It reads no more of HTTP than what tells the end of an answer.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// Longest silence of a server before it counts as hung.
const SILENCE: Duration = Duration::from_secs(30);

/// A request as it goes over the wire.
#[derive(Clone, Debug)]
pub struct Request(Vec<u8>);

impl Request {
    /// A POST of JSON. `headers` are further lines, each with its line end.
    pub fn post(path: &str, headers: &str, body: &[u8]) -> Self {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: */*\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        );
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        Self(bytes)
    }
}

/// What came back.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Whether the stream said that it is whole, or the answer was as long as announced.
    pub whole: bool,
}

/// An open connection.
pub struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// A sentence with the address.
    pub fn open(address: SocketAddr) -> Result<Self, String> {
        let said = |e: std::io::Error| format!("no connection to {address}: {e}");
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).map_err(said)?;
        stream.set_nodelay(true).map_err(said)?;
        stream.set_read_timeout(Some(SILENCE)).map_err(said)?;
        Ok(Self { stream, address, buffer: Vec::with_capacity(64 * 1024) })
    }

    /// Sends, without waiting for anything.
    ///
    /// # Errors
    /// A sentence with the address.
    pub fn send(&mut self, request: &Request) -> Result<(), String> {
        self.buffer.clear();
        self.stream.write_all(&request.0).map_err(|e| format!("{} did not take a request: {e}", self.address))
    }

    /// Sends and reads the answer to its end.
    ///
    /// # Errors
    /// A sentence when the connection breaks or nothing comes.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, String> {
        self.send(request)?;
        self.rest()
    }

    /// Sends and reads; a connection that the server had closed while it lay idle is opened anew, once.
    ///
    /// # Errors
    /// As `ask`.
    pub fn ask_again(&mut self, request: &Request) -> Result<Answer, String> {
        match self.ask(request) {
            Err(_) if self.buffer.is_empty() => {
                *self = Self::open(self.address)?;
                self.ask(request)
            }
            other => other,
        }
    }

    /// Reads until some bytes of the answer's body came, or for so long.
    ///
    /// # Errors
    /// A sentence when the connection breaks.
    pub fn begun(&mut self, limit: Duration) -> Result<bool, String> {
        let until = Instant::now() + limit;
        while find(&self.buffer, b"data:").is_none() {
            if Instant::now() >= until {
                return Ok(false);
            }
            self.more()?;
        }
        Ok(true)
    }

    /// Reads the rest of an answer.
    ///
    /// # Errors
    /// A sentence when the connection breaks or nothing comes.
    pub fn rest(&mut self) -> Result<Answer, String> {
        let head = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let text = String::from_utf8_lossy(&self.buffer[..head]).to_ascii_lowercase();
        let status = text.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:")).and_then(|n| n.trim().parse::<usize>().ok());
        let whole = match length {
            Some(length) => {
                while self.buffer.len() < head + length {
                    self.more()?;
                }
                self.buffer.len() == head + length
            }
            None if text.contains("chunked") => {
                while !self.buffer[head..].ends_with(b"0\r\n\r\n") {
                    self.keep_tail(head);
                    self.more()?;
                }
                let events = text.contains("text/event-stream");
                !events || find(&self.buffer, b"[DONE]").is_some() || find(&self.buffer, b"message_stop").is_some()
            }
            None => return Err(format!("{} sent an answer without an end", self.address)),
        };
        Ok(Answer { status, whole })
    }

    /// Of a long stream only the end is looked at.
    fn keep_tail(&mut self, head: usize) {
        const TAIL: usize = 2048;
        if self.buffer.len() > head + 16 * TAIL {
            let from = self.buffer.len() - TAIL;
            self.buffer.drain(head..from);
        }
    }

    fn more(&mut self) -> Result<(), String> {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(format!("{} closed the connection in the middle of an answer", self.address)),
            Ok(n) => {
                self.buffer.extend_from_slice(&piece[..n]);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(format!("{} said nothing for 30 s", self.address)),
            Err(e) => Err(format!("{}: {e}", self.address)),
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|w| w == what)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn served(answer: &'static str) -> Result<Answer, String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            for piece in answer.as_bytes().chunks(7) {
                stream.write_all(piece).unwrap();
            }
        });
        let answer = Connection::open(address)?.ask(&Request::post("/x", "", b"{}"));
        server.join().unwrap();
        answer
    }

    #[test]
    fn an_answer_ends_where_it_says() {
        let answer = served("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").unwrap();
        assert!(answer.status == 200 && answer.whole);
    }

    #[test]
    fn a_stream_without_its_end_mark_is_not_whole() {
        let whole = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
        assert!(served(whole).unwrap().whole);
        let cut = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: {}\n\r\n0\r\n\r\n";
        assert!(!served(cut).unwrap().whole);
    }

    #[test]
    fn a_connection_that_breaks_is_an_error_and_no_short_answer() {
        assert!(served("HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\n{}").is_err());
    }
}
