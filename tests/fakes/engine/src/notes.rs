//! What the engine notes of requests, for whoever wrote the script: one line when one came, one when it is over.

use std::{fs::OpenOptions, io::Write, path::Path, time::Instant};

use serde_json::{Value, json};
use warden_domain::clock;
use warden_fake_engine::{ARRIVED, ASKED};

use crate::wire::Request;

/// Longest text of a body that is noted; its length always is.
const LONGEST: usize = 1 << 20;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The whole answer left.
    Finished,
    /// The client closed the connection first.
    ClientGone,
    /// The script had the connection cut.
    Cut,
    /// The script had the engine end.
    Died,
}

impl End {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::ClientGone => "client_gone",
            Self::Cut => "cut",
            Self::Died => "died",
        }
    }
}

/// A request that is noted.
pub struct Note {
    begun: Instant,
    line: Value,
}

/// Seconds since 1970.
fn now() -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "microseconds fit until the year 2255")]
    let seconds = clock::now().as_microsecond() as f64 / 1e6;
    seconds
}

impl Note {
    /// Notes that it came.
    pub fn begin(folder: &Path, replica: &str, request: &Request) -> Self {
        let started = now();
        append(&folder.join(ARRIVED), &json!({"path": request.path, "method": request.method, "replica": replica, "started": started}));
        let text: String = String::from_utf8_lossy(&request.body[..request.body.len().min(LONGEST)]).into_owned();
        let line = json!({"path": request.path, "method": request.method, "query": request.query, "replica": replica, "started": started,
            "headers": request.headers, "body_bytes": request.body.len(), "body": text});
        Self { begun: Instant::now(), line }
    }

    /// Notes how it ended: the moment, after how many milliseconds, how many bytes of the answer's body and chunks had left.
    pub fn end(mut self, folder: &Path, end: End, bytes: u64, events: u64) {
        self.line["ended"] = end.as_str().into();
        self.line["ended_at"] = now().into();
        self.line["after_ms"] = (self.begun.elapsed().as_secs_f64() * 1000.0).into();
        self.line["sent_bytes"] = bytes.into();
        self.line["sent_events"] = events.into();
        append(&folder.join(ASKED), &self.line);
    }
}

/// One write per line, so that lines of several engines do not mix.
fn append(path: &Path, line: &Value) {
    let written = OpenOptions::new().create(true).append(true).open(path).and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(cause) = written {
        crate::start::log('E', &format!("notes: {}: {cause}", path.display()));
    }
}
