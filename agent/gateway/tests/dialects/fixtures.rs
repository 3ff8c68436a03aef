//! The recorded requests and streams, their goldens, and how both are compared.
//!
//! Requests have the shape real clients sent, with words of ours; streams have the shape real engines sent. `UPDATE_GOLDENS=1` writes
//! the goldens anew; what changed is then to be read before it is committed.

use std::path::{Path, PathBuf};

use serde_json::Value;
use warden_domain::{engine::EngineKind, units::Tokens};
use warden_gateway::dialects::{Target, Translation, messages::MessagesRequest, responses::ResponsesRequest};

/// What the engine in these tests is.
pub const TARGET: Target<'static> = Target { model: "tiny", engine: EngineKind::Vllm, images: None, window: Some(Tokens(32_768)) };

/// A recorded file.
pub struct Recorded {
    pub name: String,
    pub bytes: Vec<u8>,
}

fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(kind)
}

/// All files of a kind whose names end so.
pub fn recorded(kind: &str, ending: &str) -> Vec<Recorded> {
    let mut all: Vec<Recorded> = std::fs::read_dir(folder(kind))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(ending)?.to_owned();
            Some(Recorded { name, bytes: std::fs::read(&path).unwrap() })
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!all.is_empty(), "no recorded {kind} ends in {ending}");
    all
}

/// Compares with the golden of that name, or writes it.
pub fn golden(kind: &str, name: &str, text: &str) {
    let path = folder(kind).join(name);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "{} differs; UPDATE_GOLDENS=1 writes it anew. Now it is:\n{text}", path.display());
}

/// JSON as people read it.
pub fn pretty(bytes: &[u8]) -> String {
    let value: Value = serde_json::from_slice(bytes).unwrap_or_else(|cause| panic!("{cause}: {}", String::from_utf8_lossy(bytes)));
    format!("{}\n", serde_json::to_string_pretty(&value).unwrap())
}

/// The chat request a recorded request becomes, and what nobody read of it.
pub fn chat_of(dialect: &str, body: &[u8]) -> (Vec<u8>, Vec<String>) {
    match dialect {
        "messages" => {
            let request = MessagesRequest::read(body).unwrap();
            (request.chat(&TARGET).unwrap(), request.leftovers().names().to_vec())
        }
        _ => {
            let request = ResponsesRequest::read(body).unwrap();
            (request.chat(&TARGET).unwrap(), request.leftovers().names().to_vec())
        }
    }
}

/// A translation into one of the two dialects, for a client that asked for everything.
pub fn translation(dialect: &str) -> Translation {
    match dialect {
        "messages" => {
            let body = br#"{"model":"asked","thinking":{"type":"adaptive"},"messages":[{"role":"user","content":"x"}]}"#;
            MessagesRequest::read(body).unwrap().plan("req_1").stream()
        }
        _ => {
            let body = br#"{"model":"asked","input":"x","reasoning":{"effort":"high"},"include":["reasoning.encrypted_content"],"tools":[
                {"type":"custom","name":"apply_patch"},{"type":"namespace","name":"agents","tools":[{"type":"function","name":"close_agent"}]}]}"#;
            ResponsesRequest::read(body).unwrap().plan("req_1", 1_700_000_000).unwrap().stream()
        }
    }
}

/// The two dialects that are translated.
pub const TRANSLATED: [&str; 2] = ["messages", "responses"];
