//! Small bodies in the shape of what coding clients send, turn by turn.

use serde_json::{Value, json};

/// One request.
#[derive(Clone)]
pub struct Sent {
    pub headers: Vec<(&'static str, String)>,
    pub body: Value,
    pub bytes: Vec<u8>,
}

impl Sent {
    fn new(headers: Vec<(&'static str, String)>, body: Value) -> Self {
        let bytes = serde_json::to_vec(&body).unwrap();
        Self { headers, body, bytes }
    }

    fn changed(self, change: impl FnOnce(&mut Value)) -> Self {
        let mut body = self.body;
        change(&mut body);
        Self::new(self.headers, body)
    }

    fn list(body: &mut Value) -> &mut Vec<Value> {
        let name = if body["input"].is_array() { "input" } else { "messages" };
        body[name].as_array_mut().unwrap()
    }

    /// Lists of one text block become plain strings.
    pub fn with_plain_strings(self) -> Self {
        self.changed(|body| {
            for message in Self::list(body) {
                let one = message["content"].as_array().filter(|blocks| blocks.len() == 1).and_then(|blocks| blocks[0]["text"].as_str());
                if let Some(text) = one.map(str::to_owned) {
                    message["content"] = json!(text);
                }
            }
        })
    }

    /// Written with other spacing.
    pub fn spaced(mut self) -> Self {
        self.bytes = serde_json::to_vec_pretty(&self.body).unwrap();
        self
    }

    /// Without a member, wherever it stands.
    pub fn without(self, name: &str) -> Self {
        fn strip(value: &mut Value, name: &str) {
            match value {
                Value::Object(members) => {
                    members.remove(name);
                    members.values_mut().for_each(|v| strip(v, name));
                }
                Value::Array(items) => items.iter_mut().for_each(|v| strip(v, name)),
                _ => {}
            }
        }
        self.changed(|body| strip(body, name))
    }

    pub fn billed(self, version: &str) -> Self {
        self.changed(|body| body["system"][0]["text"] = json!(format!("x-anthropic-billing-header: cc_version={version}; cc_entrypoint=cli;")))
    }

    pub fn with_more_tools(self) -> Self {
        self.changed(|body| body["tools"].as_array_mut().unwrap().insert(1, json!({"name": "Found", "input_schema": {"type": "object"}})))
    }

    pub fn rewritten_arguments(self) -> Self {
        self.changed(|body| {
            for message in Self::list(body) {
                if let Some(calls) = message["tool_calls"].as_array_mut() {
                    for call in calls {
                        let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
                        call["function"]["arguments"] = json!(arguments.to_string());
                    }
                }
            }
        })
    }

    /// The request for a title: another prompt, no tools, the same ids.
    pub fn title(self) -> Self {
        self.changed(|body| {
            body["tools"] = json!([]);
            let all = Self::list(body);
            all.truncate(1);
            all.push(json!({"role": "user", "content": "Name this talk in five words."}));
        })
    }

    /// The same history and no tools.
    pub fn without_tools(self) -> Self {
        self.changed(|body| {
            body.as_object_mut().unwrap().remove("tools");
        })
    }

    pub fn with_another_last_message(self) -> Self {
        self.changed(|body| {
            let all = Self::list(body);
            let last = all.len() - 1;
            all[last] = json!({"role": "user", "content": "No, do it the other way."});
        })
    }
}

fn uuid(n: u64) -> String {
    format!("00000000-0000-4000-8000-{n:012}")
}

/// Messages, with the cache mark on the newest block and a note after each turn.
pub fn claude(session: u64, agent: Option<u64>, turn: u64) -> Sent {
    let mut headers = vec![("x-claude-code-session-id", uuid(session))];
    if let Some(agent) = agent {
        headers.push(("x-claude-code-agent-id", format!("a{agent:016}")));
    }
    let task = agent.map_or_else(|| "Run echo hi.".to_owned(), |n| format!("Look into part {n}."));
    let mut messages = vec![
        json!({"role": "user", "content": [{"type": "text", "text": "<note>Today is a day.</note>"}, {"type": "text", "text": task}]}),
        json!({"role": "system", "content": [{"type": "text", "text": "<note>The folder is empty.</note>"}]}),
    ];
    for n in 1..turn {
        messages.push(json!({"role": "assistant", "content": [
            {"type": "text", "text": "I run it."}, {"type": "tool_use", "id": format!("toolu_{n:024}"), "name": "Bash", "input": {"command": "echo hi", "n": n}}]}));
        messages.push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": format!("toolu_{n:024}"), "content": "hi", "is_error": false}]}));
        messages.push(
            json!({"role": "system", "content": [{"type": "text", "text": format!("<total_tokens>{} tokens left</total_tokens>", 1_000_000 - n)}]}),
        );
    }
    let last = messages.len() - 1;
    let blocks = messages[last]["content"].as_array_mut().unwrap();
    let end = blocks.len() - 1;
    blocks[end]["cache_control"] = json!({"type": "ephemeral"});
    let body = json!({
        "model": "tiny", "max_tokens": 32000, "stream": true, "messages": messages,
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1.0.0.16f; cc_entrypoint=cli;"},
            {"type": "text", "text": "You help with code.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "Bash", "input_schema": {"type": "object"}}, {"name": "Read", "input_schema": {"type": "object"}}],
        "metadata": {"user_id": json!({"device_id": "d", "account_uuid": "", "session_id": uuid(session)}).to_string()},
    });
    Sent::new(headers, body)
}

/// Responses, with developer items in front, reasoning and calls as items.
pub fn codex(session: u64, turn: u64) -> Sent {
    let id = uuid(session);
    let mut input = vec![
        json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Rules of the house."}], "id": "msg_1"}),
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>/tmp</environment_context>"}], "id": "msg_2"}),
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Run echo hi."}], "id": "msg_3"}),
    ];
    for n in 1..turn {
        input.push(json!({"type": "reasoning", "id": format!("rs_{n}"), "summary": [], "content": [{"type": "reasoning_text", "text": "Easy."}], "encrypted_content": null}));
        input.push(json!({"type": "function_call", "id": format!("fc_{n}"), "call_id": format!("call_{n}"), "name": "shell", "arguments": "{\"command\": [\"echo\", \"hi\"]}"}));
        input.push(json!({"type": "function_call_output", "call_id": format!("call_{n}"), "output": "hi"}));
    }
    let body = json!({
        "model": "tiny", "input": input, "tools": [{"type": "function", "name": "shell", "parameters": {}}, {"type": "web_search"}],
        "stream": true, "store": false, "prompt_cache_key": id, "parallel_tool_calls": false,
    });
    Sent::new(vec![("session-id", id.clone()), ("thread-id", id.clone()), ("x-client-request-id", id)], body)
}

/// Chat, with a session in two headers.
pub fn opencode(session: u64, turn: u64) -> Sent {
    let id = format!("ses_{session:024}");
    let body = json!({"model": "tiny", "stream": true, "messages": chat("Run echo hi.", turn), "tools": [{"type": "function", "function": {"name": "bash"}}]});
    Sent::new(vec![("x-session-id", id.clone()), ("x-session-affinity", id)], body)
}

/// Chat without any id.
pub fn qwen(first: &str, turn: u64) -> Sent {
    let body = json!({"model": "tiny", "stream": true, "stream_options": {"include_usage": true}, "messages": chat(first, turn),
        "tools": [{"type": "function", "function": {"name": "run_shell_command"}}]});
    Sent::new(Vec::new(), body)
}

/// Responses with a session in the body alone.
pub fn pi(session: u64, turn: u64) -> Sent {
    let mut sent = codex(session, turn);
    sent.headers = vec![("x-client-request-id", format!("req-{session}-{turn}"))];
    sent
}

fn chat(first: &str, turn: u64) -> Vec<Value> {
    let mut messages = vec![json!({"role": "system", "content": "You help with code."}), json!({"role": "user", "content": first})];
    for n in 1..turn {
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": format!("call_{n}"), "type": "function", "function": {"name": "run_shell_command", "arguments": "{\"command\": \"echo hi\", \"n\": 1}"}}]}));
        messages.push(json!({"role": "tool", "tool_call_id": format!("call_{n}"), "content": "hi"}));
    }
    messages
}
