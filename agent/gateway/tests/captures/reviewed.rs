//! Every recorded body against the reviewed structure and the strict reader.

use std::path::Path;

use bytes::Bytes;
use serde_json::Value;
use warden_domain::units::Tokens;
use warden_fixtures::strict;
use warden_gateway::dialects::chat::splice::{self, Edits};

use super::{
    corpus::{self, make},
    skeleton,
};

fn as_reviewed(route: &str, file: &str) {
    let mut told = String::new();
    let mut wrong = Vec::new();
    for capture in corpus::of(route) {
        let made = make(capture.route(), &capture.whole());
        told.push_str(&capture.name);
        match &made.chat {
            Err(refusal) => told.push_str(&format!("\n  refused: {refusal}\n")),
            Ok(bytes) => {
                let chat: Value = serde_json::from_slice(bytes).unwrap();
                wrong.extend(strict::complaints(&chat).into_iter().map(|sentence| format!("{}: {sentence}", capture.name)));
                told.push('\n');
                told.push_str(&skeleton::of(&chat));
            }
        }
        wrong.extend(made.left.iter().map(|field| format!("{}: nobody reads {field}", capture.name)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if !corpus::is_genuine() {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/captures").join(file);
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &told).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    let first = golden.lines().zip(told.lines()).find(|(before, now)| before != now);
    assert!(golden == told, "{} differs, first in {first:?}; UPDATE_GOLDENS=1 writes it anew", path.display());
}

#[test]
fn captured_messages_bodies_have_the_reviewed_structure_and_satisfy_a_strict_engine() {
    as_reviewed("/v1/messages", "messages.txt");
}

#[test]
fn captured_responses_bodies_have_the_reviewed_structure_and_satisfy_a_strict_engine() {
    as_reviewed("/v1/responses", "responses.txt");
}

/// Chat goes through as it came: another model's name, and a limit that the window cannot hold becomes null.
#[test]
fn captured_chat_bodies_reach_the_engine_with_every_member_they_had() {
    for capture in corpus::of("/v1/chat/completions") {
        let body = capture.whole();
        let mut expected: Value = serde_json::from_str(&body).unwrap();
        let edits = Edits { model: Some("tiny"), window: Some(Tokens(8192)) };
        let sent = splice::request(Bytes::from(body), &edits).unwrap();
        let got: Value = serde_json::from_slice(&sent).unwrap();
        expected["model"] = "tiny".into();
        for limit in ["max_tokens", "max_completion_tokens"] {
            if expected[limit].as_u64().is_some_and(|asked| asked > 1024) && got[limit].is_null() {
                expected[limit] = Value::Null;
            }
        }
        // Reading a member that is not there made it null.
        expected.as_object_mut().unwrap().retain(|name, value| !value.is_null() || got.get(name).is_some());
        assert_eq!(got, expected, "{}", capture.name);
    }
}
