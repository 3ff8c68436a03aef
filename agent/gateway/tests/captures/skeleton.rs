//! A chat request without its words: who speaks, in which order, which parts and settings there are. A text is its length in characters
//! and a hash, so that a change of a single letter is seen.

use std::fmt::Write as _;

use serde_json::Value;

/// The structure, a line for each message and one for tools and settings.
pub fn of(chat: &Value) -> String {
    let mut out = String::new();
    for message in chat["messages"].as_array().into_iter().flatten() {
        writeln!(out, "  {}", line(message)).unwrap();
    }
    if let Some(tools) = chat["tools"].as_array() {
        let all = |part: &dyn Fn(&Value) -> String| text(&tools.iter().map(part).collect::<String>());
        let names = all(&|t| t["function"]["name"].as_str().unwrap_or_default().to_owned());
        let words = all(&|t| t["function"]["description"].as_str().unwrap_or_default().to_owned());
        let schemas = all(&|t| t["function"]["parameters"].to_string());
        writeln!(out, "  {} tools: names {names}, descriptions {words}, parameters {schemas}", tools.len()).unwrap();
    }
    let settings: Vec<String> = chat
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !["messages", "tools"].contains(&name.as_str()))
        .map(|(name, value)| match name.as_str() {
            "response_format" => format!("{name}={} {}", value["type"].as_str().unwrap_or_default(), text(&value["json_schema"].to_string())),
            "stop" => format!("{name}={}", text(&value.to_string())),
            _ => format!("{name}={value}"),
        })
        .collect();
    writeln!(out, "  {}", settings.join(" ")).unwrap();
    out
}

fn line(message: &Value) -> String {
    let mut words = vec![message["role"].as_str().unwrap_or("nobody").to_owned()];
    match &message["content"] {
        Value::String(said) => words.push(text(said)),
        Value::Array(parts) => words.extend(parts.iter().map(|part| match part["type"].as_str() {
            Some("text") => text(part["text"].as_str().unwrap_or_default()),
            Some("image_url") => format!("image {}", text(part["image_url"]["url"].as_str().unwrap_or_default())),
            other => format!("{other:?}"),
        })),
        other => words.push(other.to_string()),
    }
    if let Some(thinking) = message["reasoning_content"].as_str() {
        words.push(format!("thinks {}", text(thinking)));
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let part = |value: &Value| text(value.as_str().unwrap_or_default());
        words.push(format!("calls {} with {} as {}", part(&call["function"]["name"]), part(&call["function"]["arguments"]), part(&call["id"])));
    }
    if let Some(id) = message["tool_call_id"].as_str() {
        words.push(format!("of {}", text(id)));
    }
    words.join(" ")
}

/// Length in characters and hash.
fn text(said: &str) -> String {
    // FNV-1a: the same on every machine, and nothing here is secret.
    let hash = said.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{}:{hash:08x}", said.chars().count())
}
