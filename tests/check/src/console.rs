//! What a person and a script do with the box over HTTP: claim, sign in, register, load, make keys, chat.
//!
//! In: a base address. Out: answers as JSON, or a sentence that quotes what the box said instead. Used for the agent on this machine and
//! for the one in a guest alike; it knows no file of either.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{Http, Reply, Stream};
use crate::log::CaseLog;

/// The account every case makes.
pub const ADMIN: &str = "admin";
/// Its password; boxes under test are thrown away.
pub const PASSWORD: &str = "correct horse battery staple";

/// A visitor of the console, with a session once signed in.
#[derive(Clone, Debug)]
pub struct Console {
    /// Plain requests without the session.
    pub http: Http,
    log: CaseLog,
    cookie: Option<String>,
    csrf: Option<String>,
}

/// What a streamed chat completion showed.
#[derive(Clone, Debug, Default)]
pub struct Streamed {
    /// Status of the answer.
    pub status: u16,
    /// Its content type.
    pub content_type: String,
    /// From the request to the first event.
    pub first_event: Duration,
    /// From the request to the end.
    pub took: Duration,
    /// Events with data, the closing `[DONE]` not counted.
    pub events: usize,
    /// Different moments at which events came; more than one shows that the answer was not held back.
    pub moments: usize,
    /// The text of all deltas.
    pub text: String,
    /// The last event's `usage`, when one was sent.
    pub usage: Value,
    /// True when `[DONE]` closed the stream.
    pub done: bool,
    /// What came instead of events, for a failure's sentence.
    pub other: String,
}

impl Console {
    /// A visitor without a session.
    #[must_use]
    pub fn new(base: &str, log: &CaseLog) -> Self {
        Self::over(Http::new(base, Duration::from_secs(120)), log)
    }

    /// A visitor without a session, over a client that knows whom to trust.
    #[must_use]
    pub fn over(http: Http, log: &CaseLog) -> Self {
        Self { http, log: log.clone(), cookie: None, csrf: None }
    }

    /// Somebody else at the same box: no session, connections of their own.
    #[must_use]
    pub fn stranger(&self, log: &CaseLog) -> Self {
        Self::over(self.http.again(Duration::from_secs(120)), log)
    }

    /// The same visitor, writing to the log of another case.
    #[must_use]
    pub fn logging_to(&self, log: &CaseLog) -> Self {
        Self { log: log.clone(), ..self.clone() }
    }

    /// Whether this visitor has a session.
    #[must_use]
    pub const fn is_signed_in(&self) -> bool {
        self.cookie.is_some()
    }

    /// Waits until `/healthz` answers 200 and returns how long that took.
    ///
    /// # Errors
    /// A sentence with the last answer when the limit passes.
    pub fn wait_healthy(&self, limit: Duration) -> Result<Duration, String> {
        let started = Instant::now();
        let asking = self.http.again(Duration::from_secs(5));
        let mut last;
        loop {
            match asking.get("/healthz") {
                Ok(reply) if reply.status == 200 => {
                    self.log.line(format!("GET /healthz -> 200 {}", reply.text()));
                    return Ok(started.elapsed());
                }
                Ok(reply) => last = format!("status {}: {}", reply.status, reply.text()),
                Err(e) => last = e,
            }
            if started.elapsed() >= limit {
                return Err(format!("/healthz did not answer 200 within {} s; last: {last}", limit.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(25));
        }
    }

    /// One call with the session (if there is one) and a JSON body (if given).
    ///
    /// # Errors
    /// A sentence when no answer came.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Reply, String> {
        let bytes = body.map(|b| b.to_string().into_bytes());
        self.call_raw(method, path, &[], bytes.as_deref())
    }

    /// One call with the session, extra headers and a body of any bytes, sent as JSON unless a header says otherwise.
    ///
    /// # Errors
    /// A sentence when no answer came.
    pub fn call_raw(&self, method: &str, path: &str, extra: &[(&str, &str)], body: Option<&[u8]>) -> Result<Reply, String> {
        let mut headers: Vec<(&str, &str)> = extra.to_vec();
        if body.is_some() && !extra.iter().any(|(n, _)| n.eq_ignore_ascii_case("content-type")) {
            headers.push(("content-type", "application/json"));
        }
        if let Some(cookie) = &self.cookie {
            headers.push(("cookie", cookie));
        }
        if let Some(csrf) = &self.csrf {
            headers.push(("x-csrf-token", csrf));
        }
        let body = body.or(if matches!(method, "POST" | "PUT") { Some(b"") } else { None });
        let reply = self.http.send(method, path, &headers, body)?;
        let shown: String = reply.text().chars().take(2000).collect();
        let sent: String = body.map(|b| String::from_utf8_lossy(b).chars().take(500).collect()).unwrap_or_default();
        self.log.line(format!("{method} {path} {sent} -> {} {shown}", reply.status));
        Ok(reply)
    }

    /// A call that must answer one of the statuses given.
    ///
    /// # Errors
    /// A sentence that quotes the answer when it has another status.
    pub fn expect(&self, method: &str, path: &str, body: Option<&Value>, statuses: &[u16]) -> Result<Reply, String> {
        let reply = self.call(method, path, body)?;
        if statuses.contains(&reply.status) { Ok(reply) } else { Err(format!("{method} {path} answered {}: {}", reply.status, short(&reply))) }
    }

    /// Tries to claim the box; a success keeps the session.
    ///
    /// # Errors
    /// A sentence when no answer came.
    pub fn try_claim(&mut self, code: &str, username: &str) -> Result<Reply, String> {
        let body = json!({"claim_code": code, "username": username, "password": PASSWORD});
        let reply = self.call("POST", "/api/setup/claim", Some(&body))?;
        if reply.status == 201 {
            self.keep_session(&reply)?;
        }
        Ok(reply)
    }

    /// Claims the box for [`ADMIN`].
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn claim(&mut self, code: &str) -> Result<(), String> {
        let reply = self.try_claim(code, ADMIN)?;
        if reply.status == 201 { Ok(()) } else { Err(format!("the claim was refused with status {}: {}", reply.status, short(&reply))) }
    }

    /// Signs in as [`ADMIN`].
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn login(&mut self) -> Result<(), String> {
        let reply = self.expect("POST", "/api/auth/login", Some(&json!({"username": ADMIN, "password": PASSWORD})), &[200])?;
        self.keep_session(&reply)
    }

    /// Sets the password of [`ADMIN`] with the code of an admin reset and keeps the session.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn reset_password(&mut self, code: &str) -> Result<(), String> {
        let body = json!({"reset_code": code, "username": ADMIN, "password": PASSWORD});
        let reply = self.expect("POST", "/api/auth/reset", Some(&body), &[200])?;
        self.keep_session(&reply)
    }

    fn keep_session(&mut self, reply: &Reply) -> Result<(), String> {
        let cookie = reply
            .headers
            .iter()
            .filter(|(name, _)| name == "set-cookie")
            .filter_map(|(_, value)| value.split(';').next())
            .find(|pair| pair.starts_with("warden_session="))
            .ok_or("the answer set no warden_session cookie")?;
        let csrf = reply.json()["csrf"].as_str().ok_or("the answer holds no csrf proof")?.to_owned();
        self.cookie = Some(cookie.to_owned());
        self.csrf = Some(csrf);
        Ok(())
    }

    /// Registers a model and returns its id.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn register(&self, path: &str, name: &str) -> Result<String, String> {
        let reply = self.expect("POST", "/api/models", Some(&json!({"path": path, "served_model_name": name})), &[200, 201])?;
        reply.json()["id"].as_str().map(str::to_owned).ok_or_else(|| format!("the registered model has no id: {}", short(&reply)))
    }

    /// Asks for a load.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn load(&self, id: &str) -> Result<(), String> {
        self.expect("POST", &format!("/api/models/{id}/load"), None, &[202]).map(drop)
    }

    /// Asks for an unload.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn unload(&self, id: &str) -> Result<(), String> {
        self.expect("POST", &format!("/api/models/{id}/unload"), None, &[202]).map(drop)
    }

    /// The model's document.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn model(&self, id: &str) -> Result<Value, String> {
        self.expect("GET", &format!("/api/models/{id}"), None, &[200]).map(|r| r.json())
    }

    /// Waits until the model is in one of the states (by their words) and returns its document.
    ///
    /// # Errors
    /// A sentence with the present state when the limit passes.
    pub fn wait_state(&self, id: &str, words: &[&str], limit: Duration) -> Result<Value, String> {
        let until = Instant::now() + limit;
        loop {
            let model = self.model(id)?;
            let word = state_word(&model);
            if words.contains(&word) {
                return Ok(model);
            }
            if word == "failed" || Instant::now() >= until {
                return Err(format!("the model is {word} and not {}: {}", words.join(" or "), model["state"]));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Registers, loads and waits until it runs; returns the id and the document.
    ///
    /// # Errors
    /// A sentence saying which step did not go through.
    pub fn serve(&self, path: &str, name: &str, limit: Duration) -> Result<(String, Value), String> {
        let id = self.register(path, name)?;
        self.load(&id)?;
        let model = self.wait_state(&id, &["running"], limit)?;
        Ok((id, model))
    }

    /// Makes a key; returns its id and its secret.
    ///
    /// # Errors
    /// A sentence that quotes the refusal.
    pub fn make_key(&self, name: &str) -> Result<(String, String), String> {
        let reply = self.expect("POST", "/api/tokens", Some(&json!({"name": name})), &[201])?;
        let made = reply.json();
        match (made["id"].as_str(), made["plaintext"].as_str()) {
            (Some(id), Some(secret)) => Ok((id.to_owned(), secret.to_owned())),
            _ => Err(format!("the key made has no id or plaintext: {}", short(&reply))),
        }
    }

    /// One chat completion, not streamed.
    ///
    /// # Errors
    /// A sentence that quotes the refusal, or what is missing in the answer.
    pub fn chat(&self, key: &str, model: &str, question: &str) -> Result<Value, String> {
        let body = json!({"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 16, "temperature": 0});
        let bearer = format!("Bearer {key}");
        let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
        let reply = self.http.send("POST", "/v1/chat/completions", &headers, Some(body.to_string().as_bytes()))?;
        self.log.line(format!("POST /v1/chat/completions {body} -> {} {}", reply.status, reply.text()));
        if reply.status == 200 { Ok(reply.json()) } else { Err(format!("the chat completion answered {}: {}", reply.status, short(&reply))) }
    }

    /// One chat completion, streamed, with usage asked for.
    ///
    /// # Errors
    /// A sentence when no answer came or the stream broke off.
    pub fn chat_stream(&self, key: &str, model: &str, question: &str, max_tokens: u32) -> Result<Streamed, String> {
        let body = json!({"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": max_tokens, "stream": true, "ignore_eos": true,
            "stream_options": {"include_usage": true}});
        let bearer = format!("Bearer {key}");
        let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
        let mut stream = self.http.stream("POST", "/v1/chat/completions", &headers, Some(body.to_string().as_bytes()))?;
        let content_type = stream.headers.iter().find(|(n, _)| n == "content-type").map(|(_, v)| v.clone()).unwrap_or_default();
        let mut seen = Streamed { status: stream.status, content_type, ..Streamed::default() };
        let mut last_moment = None;
        while let Some((at, line)) = stream.next_line()? {
            seen.took = at;
            let Some(data) = line.strip_prefix("data: ") else {
                if !line.is_empty() && !line.starts_with(':') {
                    seen.other.push_str(&line);
                }
                continue;
            };
            if data == "[DONE]" {
                seen.done = true;
                continue;
            }
            let event: Value = serde_json::from_str(data).map_err(|e| format!("an event is not JSON ({e}): {data}"))?;
            if seen.events == 0 {
                seen.first_event = at;
            }
            seen.events += 1;
            if last_moment.is_none_or(|before| at.saturating_sub(before) > Duration::from_micros(500)) {
                seen.moments += 1;
            }
            last_moment = Some(at);
            seen.text.push_str(event["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
            if !event["usage"].is_null() {
                seen.usage = event["usage"].clone();
            }
        }
        self.log.line(format!("POST /v1/chat/completions {body} -> {seen:?}"));
        Ok(seen)
    }

    /// A streamed answer for the signed-in visitor; it ends after `limit` at the latest.
    ///
    /// # Errors
    /// A sentence when no answer came or its status is not 200.
    pub fn stream(&self, method: &str, path: &str, limit: Duration) -> Result<Stream, String> {
        let mut headers = Vec::new();
        if let Some(cookie) = &self.cookie {
            headers.push(("cookie", cookie.as_str()));
        }
        let stream = self.http.again(limit).stream(method, path, &headers, None)?;
        if stream.status == 200 { Ok(stream) } else { Err(format!("{method} {path} answered {}", stream.status)) }
    }

    /// A page of the console as the signed-in visitor gets it.
    ///
    /// # Errors
    /// A sentence that names the status when it is not 200.
    pub fn page(&self, path: &str) -> Result<String, String> {
        let reply = self.expect("GET", path, None, &[200])?;
        Ok(reply.text())
    }
}

/// The state word of a model's document.
#[must_use]
pub fn state_word(model: &Value) -> &str {
    model["state"]["state"].as_str().or_else(|| model["status"].as_str()).unwrap_or("unknown")
}

/// The launch identity of a model's first replica.
#[must_use]
pub fn launch_identity(model: &Value) -> Option<&str> {
    model["state"]["replicas"][0]["launch"].as_str()
}

/// The entries of a list document.
#[must_use]
pub fn items(list: &Value) -> Option<Vec<Value>> {
    ["items", "models"].iter().find_map(|name| list[*name].as_array()).or_else(|| list.as_array()).cloned()
}

/// The first part of an answer's body, for sentences.
#[must_use]
pub fn short(reply: &Reply) -> String {
    reply.text().chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_documents_state_and_launch_are_found_where_the_api_puts_them() {
        let model = json!({"status": "running", "state": {"state": "running", "replicas": [{"id": "a", "launch": "inv-1"}]}});
        assert_eq!(state_word(&model), "running");
        assert_eq!(launch_identity(&model), Some("inv-1"));
        assert_eq!(state_word(&json!({})), "unknown");
    }
}
