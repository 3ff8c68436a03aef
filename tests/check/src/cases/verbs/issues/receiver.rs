//! A receiver of webhooks on this machine: takes what is posted, answers as it was told, keeps everything it heard.
//!
//! It checks signatures with an HMAC written here, so that an error in the agent's own is not made twice.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::log::CaseLog;

/// One message that came.
#[derive(Clone, Debug)]
pub struct Heard {
    /// `X-Warden-Delivery`.
    pub delivery: String,
    /// `X-Warden-Event`.
    pub event: String,
    /// `X-Warden-Signature`.
    pub signature: String,
    /// The body as it came.
    pub body: Vec<u8>,
    /// The path it was posted to.
    pub path: String,
    /// What it was answered with.
    pub status: u16,
}

impl Heard {
    /// The body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The code of the issue it tells of.
    #[must_use]
    pub fn code(&self) -> String {
        self.json()["issue"]["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Whether the signature is right for a secret, and the moment in it is close to now.
    #[must_use]
    pub fn is_signed_with(&self, secret: &str, now: i64) -> bool {
        let Some((moment, mac)) = self.signature.strip_prefix("t=").and_then(|rest| rest.split_once(",v1=")) else { return false };
        let mut text = moment.as_bytes().to_vec();
        text.push(b'.');
        text.extend_from_slice(&self.body);
        let fresh = moment.parse::<i64>().is_ok_and(|at| (now - at).abs() < 120);
        fresh && hex::encode(hmac(secret.as_bytes(), &text)) == mac
    }
}

fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&Sha256::digest(key))
    } else {
        block[..key.len()].copy_from_slice(key)
    }
    let pad = |with: u8| block.iter().map(|b| b ^ with).collect::<Vec<u8>>();
    let inner = Sha256::digest([pad(0x36).as_slice(), text].concat());
    Sha256::digest([pad(0x5c).as_slice(), inner.as_slice()].concat()).to_vec()
}

#[derive(Default)]
struct State {
    heard: Vec<Heard>,
    /// Refuse this many with 503 first.
    refuse: usize,
}

/// The running receiver; it ends with its handle.
pub struct Receiver {
    port: u16,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
}

impl Receiver {
    /// Listens on a port; 0 = a free one. The first `refuse` messages are answered with 503.
    ///
    /// # Errors
    /// A sentence when the port is taken.
    pub fn start(port: u16, refuse: usize, log: &CaseLog) -> Result<Self, String> {
        let listener = TcpListener::bind(("127.0.0.1", port)).map_err(|e| format!("port {port} for the receiver: {e}"))?;
        let port = listener.local_addr().map_err(|e| e.to_string())?.port();
        let state = Arc::new(Mutex::new(State { refuse, ..State::default() }));
        let stop = Arc::new(AtomicBool::new(false));
        let (kept, ending, log) = (state.clone(), stop.clone(), log.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ending.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(why) = serve(stream, &kept, &log) {
                    log.line(format!("receiver: {why}"));
                }
            }
        });
        Ok(Self { port, state, stop })
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/warden?box=1", self.port)
    }

    /// Everything that came.
    #[must_use]
    pub fn heard(&self) -> Vec<Heard> {
        self.state.lock().map(|state| state.heard.clone()).unwrap_or_default()
    }

    /// What came and was taken.
    #[must_use]
    pub fn taken(&self, event: &str) -> Vec<Heard> {
        self.heard().into_iter().filter(|heard| heard.status == 200 && heard.event == event).collect()
    }

    /// Waits until something holds for all that came.
    #[must_use]
    pub fn wait(&self, limit: Duration, holds: impl Fn(&[Heard]) -> bool) -> bool {
        let until = Instant::now() + limit;
        loop {
            if holds(&self.heard()) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _woken_to_end = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>, log: &CaseLog) -> Result<(), String> {
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(|e| e.to_string())?;
    let mut reader = BufReader::new(stream);
    let mut line = || -> Result<String, String> {
        let mut text = String::new();
        reader.read_line(&mut text).map_err(|e| e.to_string())?;
        Ok(text.trim_end().to_owned())
    };
    let path = line()?.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    loop {
        let text = line()?;
        let Some((name, value)) = text.split_once(':') else { break };
        headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone()).unwrap_or_default();
    let length: usize = header("content-length").parse().unwrap_or(0);
    let mut body = vec![0_u8; length.min(1 << 20)];
    reader.read_exact(&mut body).map_err(|e| e.to_string())?;
    let status = {
        let mut state = state.lock().map_err(|e| e.to_string())?;
        let refuse = state.refuse > 0;
        state.refuse = state.refuse.saturating_sub(1);
        let status = match path.as_str() {
            "/moved" => 302,
            _ if refuse => 503,
            _ => 200,
        };
        let [delivery, event, signature] = ["x-warden-delivery", "x-warden-event", "x-warden-signature"].map(header);
        log.line(format!("receiver: {path} {event} {delivery} {signature} {} -> {status}", String::from_utf8_lossy(&body)));
        state.heard.push(Heard { delivery, event, signature, body, path, status });
        status
    };
    let answer = format!("HTTP/1.1 {status} X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    reader.into_inner().write_all(answer.as_bytes()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_own_hmac_is_the_one_of_the_standard() {
        // RFC 4231, test case 2.
        let mac = hmac(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(hex::encode(mac), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn a_signature_of_another_body_or_of_long_ago_is_not_accepted() {
        let sign = |at: i64, body: &[u8]| format!("t={at},v1={}", hex::encode(hmac(b"k", &[format!("{at}.").as_bytes(), body].concat())));
        let heard = |signature: String| Heard {
            delivery: String::new(),
            event: String::new(),
            signature,
            body: b"{}".to_vec(),
            path: String::new(),
            status: 200,
        };
        assert!(heard(sign(1000, b"{}")).is_signed_with("k", 1001));
        assert!(!heard(sign(1000, b"{}")).is_signed_with("other", 1001));
        assert!(!heard(sign(1000, b"[]")).is_signed_with("k", 1001));
        assert!(!heard(sign(1000, b"{}")).is_signed_with("k", 9000));
        assert!(!heard("v1=00".to_owned()).is_signed_with("k", 1001));
    }
}
