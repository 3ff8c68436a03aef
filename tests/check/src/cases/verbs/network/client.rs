//! A person's browser on the test network, as far as an API needs one: calls from the machine behind the router, by curl.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warden_vm::Lan;

use crate::console::{ADMIN, PASSWORD};
use crate::log::CaseLog;

/// Where the console is at an address: the one place that knows scheme and port.
#[must_use]
pub fn base(address: &str) -> String {
    format!("https://{address}")
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status; 0 when nothing came.
    pub status: u16,
    /// Everything before the body.
    pub head: String,
    /// The body as JSON; `null` when it is none.
    pub json: Value,
    /// The body as it came.
    pub text: String,
}

impl Answer {
    /// The sentence of a refusal with its way out.
    #[must_use]
    pub fn sentence(&self) -> String {
        let detail = &self.json["detail"];
        format!("{} {}", detail["message"].as_str().unwrap_or_default(), detail["hint"].as_str().unwrap_or_default()).trim().to_owned()
    }
}

/// A client with a session once signed in.
pub struct Client<'a> {
    lan: &'a Lan,
    log: CaseLog,
    /// The address it speaks to.
    pub address: String,
    cookie: String,
    csrf: String,
}

impl<'a> Client<'a> {
    /// A client without a session.
    pub fn new(lan: &'a Lan, address: &str, log: &CaseLog) -> Self {
        Self { lan, log: log.clone(), address: address.to_owned(), cookie: String::new(), csrf: String::new() }
    }

    /// One call that gives up after `limit`.
    pub fn call_within(&self, method: &str, path: &str, body: Option<&Value>, limit: Duration) -> Result<Answer, String> {
        let url = format!("{}{path}", base(&self.address));
        let mut argv: Vec<String> =
            ["curl", "--silent", "--show-error", "--insecure", "--noproxy", "*", "--include", "--max-time"].map(str::to_owned).into();
        argv.extend([format!("{:.1}", limit.as_secs_f64()), "--request".into(), method.into()]);
        if !self.cookie.is_empty() {
            argv.extend(["--header".into(), format!("cookie: {}", self.cookie), "--header".into(), format!("x-csrf-token: {}", self.csrf)]);
        }
        let mut input = Vec::new();
        if let Some(body) = body {
            argv.extend(["--header".into(), "content-type: application/json".into(), "--data-binary".into(), "@-".into()]);
            input = body.to_string().into_bytes();
        }
        argv.push(url.clone());
        let output = self.lan.run(&argv, &input).map_err(|e| e.to_string())?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (head, text) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
        let status = head.split_whitespace().nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        let shown: String = text.chars().take(1500).collect();
        self.log.line(format!(
            "{method} {url} {} -> {status} {shown}{}",
            String::from_utf8_lossy(&input),
            String::from_utf8_lossy(&output.stderr).trim()
        ));
        Ok(Answer { status, head: head.to_owned(), json: serde_json::from_str(text).unwrap_or(Value::Null), text: text.to_owned() })
    }

    /// One call.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer, String> {
        self.call_within(method, path, body, Duration::from_secs(30))
    }

    /// A call that must answer 200.
    pub fn get(&self, path: &str) -> Result<Value, String> {
        let answer = self.call("GET", path, None)?;
        if answer.status == 200 { Ok(answer.json) } else { Err(format!("GET {path} answered {}: {}", answer.status, answer.text)) }
    }

    /// Whether the box answers at this address, asked once.
    pub fn answers(&self) -> bool {
        self.call_within("GET", "/healthz", None, Duration::from_secs(2)).is_ok_and(|answer| answer.status == 200)
    }

    /// Waits until the box answers at this address; how long that took, or `None`.
    pub fn wait(&self, limit: Duration) -> Option<Duration> {
        let started = Instant::now();
        while started.elapsed() < limit {
            if self.answers() {
                return Some(started.elapsed());
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        None
    }

    /// Makes the administrator with the code of the local screen.
    pub fn claim(&mut self, code: &str) -> Result<(), String> {
        let answer = self.call("POST", "/api/setup/claim", Some(&json!({"claim_code": code, "username": ADMIN, "password": PASSWORD})))?;
        self.keep_session(&answer, 201)
    }

    /// Signs in.
    pub fn login(&mut self) -> Result<(), String> {
        let answer = self.call("POST", "/api/auth/login", Some(&json!({"username": ADMIN, "password": PASSWORD})))?;
        self.keep_session(&answer, 200)
    }

    fn keep_session(&mut self, answer: &Answer, wanted: u16) -> Result<(), String> {
        if answer.status != wanted {
            return Err(format!("signing in answered {}: {}", answer.status, answer.text));
        }
        let cookie = answer.head.lines().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
            let pair = value.trim().split(';').next().unwrap_or_default();
            (name.eq_ignore_ascii_case("set-cookie") && pair.contains("session=")).then(|| pair.to_owned())
        });
        self.cookie = cookie.ok_or("the answer set no session cookie")?;
        self.csrf = answer.json["csrf"].as_str().ok_or("the answer holds no csrf proof")?.to_owned();
        Ok(())
    }
}
