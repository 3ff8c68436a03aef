//! Asks the agent for its status over the local socket. One short question, a cap on the answer, and a time limit: a stuck agent must
//! not make the screen stand still.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

const PATIENCE: Duration = Duration::from_secs(3);
const MAX_BYTES: u64 = 256 * 1024;

/// What the agent tells the screen.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Status {
    /// The box's own name.
    pub name: String,
    /// Version of the running agent.
    pub version: String,
    /// Network addresses.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Where the pages are.
    #[serde(default)]
    pub console_urls: Vec<String>,
    /// The code that makes the first account; nothing once there is one.
    #[serde(default)]
    pub claim_code: Option<String>,
    /// The code that lets an admin set a new password; nothing unless an admin reset was asked for here.
    #[serde(default)]
    pub reset_code: Option<String>,
    /// Names of the admins, shown beside the reset code.
    #[serde(default)]
    pub admins: Vec<String>,
    /// Fingerprint of the certificate that the console shows to browsers; nothing without TLS.
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// How far an update is, or why the last one did not work.
    #[serde(default)]
    pub update: Option<String>,
    /// `ok` or `degraded`.
    pub health: String,
    /// What an admin should know.
    #[serde(default)]
    pub sentences: Vec<String>,
    /// Models and their states.
    #[serde(default)]
    pub models: Vec<Model>,
}

/// One model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Its state in one word.
    pub state: String,
}

/// Why there is no status.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Silence {
    /// Nobody listens.
    #[error("it is not running")]
    NotThere,
    /// The connection broke or took too long.
    #[error("it does not answer ({0})")]
    Broken(String),
    /// The answer is not a status.
    #[error("its answer is not understood ({0})")]
    Odd(String),
}

/// Asks once.
pub fn status(socket: &Path) -> Result<Status, Silence> {
    let answer = call(socket, "GET /console/status HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let (code, body) = split(&answer)?;
    if code != "200" {
        return Err(Silence::Odd(format!("HTTP {code}")));
    }
    serde_json::from_slice(body).map_err(|error| Silence::Odd(error.to_string()))
}

/// Has the agent install the update on the stick that is plugged in, and restart into it. Says what came of the wish.
#[must_use]
pub fn update_from_stick(socket: &Path) -> String {
    let body = r#"{"install":true,"restart":true}"#;
    let ask = format!(
        "POST /updates/from-stick HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let answered = call(socket, &ask);
    match answered.as_ref().map_err(ToString::to_string).and_then(|answer| split(answer).map_err(|silence| silence.to_string())) {
        Ok(("202", _)) => "The stick is being read. How far it is stands above; the machine restarts when the new system is written.".to_owned(),
        Ok((code, body)) => {
            let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
            let words = ["message", "hint"].map(|part| said["detail"][part].as_str().unwrap_or_default().to_owned()).join(" ");
            let words = words.trim();
            if words.is_empty() { format!("Not done: the agent answered {code}. Try again in a moment.") } else { format!("Not done: {words}") }
        }
        Err(silence) => format!("Not done: updates need the agent, and {silence}. Restart the machine from the menu, then try again."),
    }
}

fn call(socket: &Path, question: &str) -> Result<Vec<u8>, Silence> {
    let broken = |error: std::io::Error| Silence::Broken(error.to_string());
    let mut stream = UnixStream::connect(socket).map_err(|_| Silence::NotThere)?;
    stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE))).map_err(broken)?;
    stream.write_all(question.as_bytes()).map_err(broken)?;
    let mut answer = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut answer).map_err(broken)?;
    Ok(answer)
}

/// Status code and body of an answer.
fn split(answer: &[u8]) -> Result<(&str, &[u8]), Silence> {
    let odd = || Silence::Odd("no HTTP head".to_owned());
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(odd)?;
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| odd())?;
    Ok((head.split_ascii_whitespace().nth(1).unwrap_or_default(), &answer[end + 4..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const BODY: &str = r#"{"name":"box","version":"1.0","addresses":["10.0.2.15"],"console_urls":["http://10.0.2.15:8080/"],
        "claim_code":"ABCD-EFGH","health":"ok","sentences":[],"models":[{"name":"tiny","state":"running"}],"later":1}"#;

    fn answered(answer: String) -> Result<Status, Silence> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("console.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let agent = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 512];
            let _ = stream.read(&mut asked).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let status = status(&path);
        agent.join().unwrap();
        status
    }

    #[test]
    fn a_status_of_a_newer_agent_is_still_read() {
        let status = answered(format!("HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{BODY}")).unwrap();
        assert_eq!(status.claim_code.as_deref(), Some("ABCD-EFGH"));
        assert_eq!(status.models[0].name, "tiny");
    }

    #[test]
    fn the_agents_refusal_of_a_stick_reaches_the_screen_whole() {
        let said = |answer: String| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("console.sock");
            let listener = UnixListener::bind(&path).unwrap();
            let agent = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = [0; 512];
                let got = stream.read(&mut asked).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
                String::from_utf8_lossy(&asked[..got]).into_owned()
            });
            (update_from_stick(&path), agent.join().unwrap())
        };
        let (told, asked) = said("HTTP/1.0 202 Accepted\r\n\r\n{\"task\":\"x\"}".into());
        assert!(told.starts_with("The stick is being read") && asked.ends_with(r#"{"install":true,"restart":true}"#), "{asked}");
        let detail = r#"{"detail":{"message":"An update is being worked on.","hint":"Wait."}}"#;
        assert_eq!(said(format!("HTTP/1.0 409 Conflict\r\n\r\n{detail}")).0, "Not done: An update is being worked on. Wait.");
        assert!(update_from_stick(Path::new("/nonexistent/x.sock")).contains("need the agent"));
    }

    #[test]
    fn a_failing_agent_is_told_apart_from_a_missing_one() {
        assert_eq!(answered("HTTP/1.1 500 no\r\n\r\n".into()), Err(Silence::Odd("HTTP 500".into())));
        assert!(matches!(answered("HTTP/1.1 200 OK\r\n\r\nnot json".into()), Err(Silence::Odd(_))));
        assert!(matches!(answered(String::new()), Err(Silence::Odd(_))));
        assert_eq!(status(Path::new("/nonexistent/console.sock")), Err(Silence::NotThere));
    }
}
