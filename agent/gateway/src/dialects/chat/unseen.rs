//! Images in a chat request for a model that reads text only: each is replaced by a sentence, as in the translated dialects; every other
//! byte stays.
//!
//! A client that shows a picture in one turn of a long conversation goes on with it in every later one. A refusal would end that
//! conversation for good; a sentence lets the model say what it cannot see. Pure.

use std::borrow::Cow;

use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use warden_domain::Problem;

use super::{
    splice::{quoted, spliced},
    turns::UNSEEN,
};
use crate::{
    dialects::{lists::Room, unreadable},
    scan,
};

/// Kinds of parts that hold an image.
const IMAGES: [&str; 2] = ["image_url", "input_image"];

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow, default)]
    messages: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
}

/// Whether a request may have images at all. Most have none, and need not be looked into.
pub fn may_show_images(body: &[u8]) -> bool {
    IMAGES.iter().any(|kind| memmem::find(body, kind.as_bytes()).is_some())
}

/// The request with a sentence in the place of each image; the same bytes when it has none. What is no chat request is left to the engine.
///
/// # Errors
/// `BadRequest` when it is no JSON object, or its lists hold too much.
pub fn without_images(body: Bytes) -> Result<Bytes, Problem> {
    let request: Request<'_> = serde_json::from_slice(&body).map_err(|cause| unreadable(&cause.to_string(), "OpenAI's API"))?;
    let mut changes = Vec::new();
    let room = Room::default();
    for message in list(request.messages, &room)? {
        let content = serde_json::from_str::<Message<'_>>(message.get()).ok().and_then(|message| message.content);
        for part in list(content, &room)? {
            let kind = serde_json::from_str::<Part<'_>>(part.get()).ok().and_then(|part| part.kind);
            if kind.is_some_and(|kind| IMAGES.contains(&&*kind)) {
                let (at, until) = scan::span(&body, part);
                changes.push((at, until, instead()));
            }
        }
    }
    Ok(if changes.is_empty() { body } else { Bytes::from(spliced(&body, &changes)) })
}

/// What is in a list; nothing where it is none.
fn list<'a>(value: Option<&'a RawValue>, room: &Room) -> Result<Vec<&'a RawValue>, Problem> {
    let all = value.and_then(|list| room.read(list.get()).ok()).unwrap_or_default();
    room.refusal().map_or(Ok(all), Err)
}

fn instead() -> Vec<u8> {
    [br#"{"type":"text","text":"#.as_slice(), &quoted(UNSEEN), b"}"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(body: &'static str) -> String {
        String::from_utf8(without_images(Bytes::from_static(body.as_bytes())).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn each_image_becomes_a_sentence_and_every_other_byte_stays() {
        let body = r#"{ "model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what is \"image_url\"?"} , {"image_url":{"url":"data:image/png;base64,AAAA"},"type":"image_url"}]},{"role":"tool","content":[{"type":"input_image","image_url":"x"}]}],"x":1.50}"#;
        let note = String::from_utf8(instead()).unwrap();
        let expected = format!(
            r#"{{ "model":"m","messages":[{{"role":"user","content":[{{"type":"text","text":"what is \"image_url\"?"}} , {note}]}},{{"role":"tool","content":[{note}]}}],"x":1.50}}"#
        );
        assert_eq!(seen(body), expected);
        assert!(serde_json::from_str::<serde_json::Value>(&expected).is_ok());
    }

    #[test]
    fn a_request_without_images_is_the_same_bytes() {
        for body in [
            r#"{"model":"m","messages":[{"role":"user","content":"an \"image_url\", a data:image/png"}]}"#,
            r#"{"messages":[{"content":[{"type":"text","text":"image_url"}]}],"tools":[{"type":"image_url"}]}"#,
            r#"{"messages":"image_url"}"#,
            r#"{"messages":[1,{"content":{"type":"image_url"}}]}"#,
        ] {
            assert_eq!(seen(body), body);
        }
    }
}
