//! Reads the few fields of a request body the gateway acts on, and makes the few edits it needs, without a tree.
//!
//! In: the bytes of the body. Out: model name, stream flag, and the bytes to send on: the same ones, with at most a few splices (usage
//! at the end of a stream is asked for, a limit beyond the window is taken out). Everything else, known or unknown, reaches the engine
//! byte for byte. One pass reads (it also learns what tells the conversation), and nothing is copied for an edit. Pure.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use warden_domain::{Problem, ProblemKind, units::Tokens};
use warden_schedule::identity::{self, Scan};

use crate::{dialects::numbers, spliced::Spliced};

/// A place in the body and what is to stand there.
type Edit = (usize, usize, &'static str);

use crate::multipart::Form;

/// What a request asks for, as far as the gateway cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The model named.
    pub model: String,
    /// Whether the answer is to be streamed.
    pub stream: bool,
    /// Whether the client itself asked for usage at the end of the stream.
    pub wants_usage: bool,
    /// The edit that asks the engine for usage.
    usage: Edit,
    /// The edit that asks the engine for a stream.
    streamed: Edit,
    /// Limits on the answer: where they stand, and how much they allow.
    limits: Vec<(usize, usize, u64)>,
    /// What tells its conversation.
    pub talk: Option<Scan>,
}

impl From<Form> for Asked {
    fn from(form: Form) -> Self {
        // A form is never edited.
        Self { model: form.model, stream: form.stream, wants_usage: true, usage: (0, 0, ""), streamed: (0, 0, ""), limits: Vec::new(), talk: None }
    }
}

/// The members seen at the top level; `None` when absent.
#[derive(Default)]
struct Members {
    model: Option<Range<usize>>,
    stream: Option<Range<usize>>,
    options: Option<Range<usize>>,
    limits: [Option<Range<usize>>; 2],
    /// A member that is there twice.
    again: Option<&'static str>,
}

/// Checks the body and reads it.
pub(crate) fn read(body: &[u8]) -> Result<Asked, Problem> {
    let mut members = Members::default();
    let talk = identity::scan_members(body, |name, value| members.see(name, value)).ok_or_else(|| unreadable(body))?;
    if let Some(name) = members.again {
        return Err(unusable(&format!("'{name}' is there twice")));
    }
    let model = members
        .model
        .ok_or_else(|| bad("The request names no model.", "model").hint("Put the name of a loaded model into 'model'; GET /v1/models lists them."))?;
    let model: String = serde_json::from_slice(&body[model]).map_err(|_| bad("'model' must be a string.", "model"))?;
    let stream = match members.stream.clone().map(|flag| &body[flag]) {
        None | Some(b"null" | b"false") => false,
        Some(b"true") => true,
        Some(_) => return Err(bad("'stream' must be true or false.", "stream")),
    };
    let (wants_usage, usage) = usage(body, members.options)?;
    let limits = members.limits.into_iter().flatten().filter_map(|at| {
        let asked = serde_json::from_slice::<u64>(&body[at.clone()]).ok()?;
        Some((at.start, at.end, asked))
    });
    let at = after_brace(body);
    let streamed = members.stream.map_or((at, at, "\"stream\":true,"), |flag| (flag.start, flag.end, "true"));
    Ok(Asked { model, stream, wants_usage, usage, streamed, limits: limits.collect(), talk })
}

impl Members {
    /// Keeps one that matters.
    fn see(&mut self, name: &[u8], value: Range<usize>) {
        let (slot, name) = match name {
            b"model" => (&mut self.model, "model"),
            b"stream" => (&mut self.stream, "stream"),
            b"stream_options" => (&mut self.options, "stream_options"),
            b"max_tokens" => (&mut self.limits[0], "max_tokens"),
            b"max_completion_tokens" => (&mut self.limits[1], "max_completion_tokens"),
            _ => return,
        };
        // Engines take the last of two, others the first: what is decided here must be what they do.
        if slot.replace(value).is_some() {
            self.again = Some(name);
        }
    }
}

/// Whether usage is asked for, and the edit that asks for it.
fn usage(body: &[u8], options: Option<Range<usize>>) -> Result<(bool, Edit), Problem> {
    let Some(Range { start: at, end: until }) = options else {
        let at = after_brace(body);
        return Ok((false, (at, at, r#""stream_options":{"include_usage":true},"#)));
    };
    let options = &body[at..until];
    if options == b"null" {
        return Ok((false, (at, until, r#"{"include_usage":true}"#)));
    }
    Ok(match usage_flag(options)? {
        Some(flag) => {
            let (at, until) = span(body, flag);
            (flag.get() == "true", (at, until, "true"))
        }
        None => {
            let at = at + after_brace(options);
            let empty = options[1..].trim_ascii_start().starts_with(b"}");
            (false, (at, at, if empty { r#""include_usage":true"# } else { r#""include_usage":true,"# }))
        }
    })
}

impl Asked {
    /// The body it was read of, for the engine: as a stream with its usage if `stream`, and without limits that the window cannot hold.
    /// The same bytes when there is nothing to do.
    pub(crate) fn edited(&self, body: &Bytes, stream: bool, window: Option<Tokens>) -> Spliced {
        // null is the same as absent to every engine, so commas need no care.
        let beyond = self.limits.iter().filter(|(.., asked)| !numbers::fits(*asked, window, body.len()));
        let mut edits: Vec<Edit> = beyond.map(|(at, until, _)| (*at, *until, "null")).collect();
        if stream && !self.wants_usage {
            edits.push(self.usage);
        }
        if stream && !self.stream {
            edits.push(self.streamed);
        }
        edits.sort_by_key(|(at, ..)| *at);
        Spliced::of(body, edits.into_iter().map(|(at, until, text)| (at..until, Bytes::from_static(text.as_bytes()))))
    }
}

fn unreadable(body: &[u8]) -> Problem {
    if let Err(cause) = std::str::from_utf8(body) {
        return unusable(&format!("it is not UTF-8 (from byte {} on)", cause.valid_up_to()));
    }
    match serde_json::from_slice::<IgnoredAny>(body) {
        Ok(_) if body.trim_ascii_start().starts_with(b"{") => too_deep(),
        Ok(_) => unusable("it is not a JSON object"),
        Err(cause) => unusable(&format!("it is not valid JSON ({cause})")),
    }
}

/// What tells the conversation of a body that was read already, in another dialect. An error: no engine should see it.
pub(crate) fn talk(body: &[u8]) -> Result<Option<Scan>, Problem> {
    identity::scan_members(body, |_, _| {}).ok_or_else(|| unreadable(body))
}

/// Engines go into a body by calling themselves, and one that runs out of stack takes the answers of others along.
fn too_deep() -> Problem {
    Problem::new(ProblemKind::BadRequest, format!("The body is nested deeper than {} levels.", identity::MOST_NESTED))
        .hint("Send flatter JSON; a schema of a tool needs no more than some ten levels.")
}

fn unusable(what: &str) -> Problem {
    Problem::new(ProblemKind::BadRequest, format!("The body cannot be used: {what}.")).hint("Send one JSON object, as OpenAI's API describes it.")
}

/// The value of `include_usage` inside `stream_options`, which must be an object.
fn usage_flag(options: &[u8]) -> Result<Option<&RawValue>, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(options);
    (&mut reader).deserialize_map(Flag).map_err(|_| bad("'stream_options' must be an object, with 'include_usage' at most once.", "stream_options"))
}

fn bad(message: &str, param: &str) -> Problem {
    Problem::new(ProblemKind::BadRequest, message).param(param)
}

/// Where a value that was read out of `whole` lies in it.
pub(crate) fn span(whole: &[u8], part: &RawValue) -> (usize, usize) {
    let at = part.get().as_ptr().addr() - whole.as_ptr().addr();
    (at, at + part.get().len())
}

/// The place right behind the opening brace of an object.
pub(crate) fn after_brace(object: &[u8]) -> usize {
    object.iter().position(|b| *b == b'{').map_or(0, |at| at + 1)
}

struct Flag;

impl<'de> Visitor<'de> for Flag {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut flag = None;
        while let Some(name) = map.next_key::<Name<'de>>()? {
            let value: &'de RawValue = map.next_value()?;
            if name.0 == "include_usage" && flag.replace(value).is_some() {
                return Err(serde::de::Error::custom("'include_usage' is there twice"));
            }
        }
        Ok(flag)
    }
}

/// A member name, borrowed where it has no escapes.
#[derive(serde::Deserialize)]
pub(crate) struct Name<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn asked(text: &str) -> Asked {
        read(text.as_bytes()).unwrap()
    }

    fn with_usage(text: &str) -> Bytes {
        Asked { stream: true, ..asked(text) }.edited(&Bytes::copy_from_slice(text.as_bytes()), true, None).to_bytes()
    }

    #[test]
    fn only_the_top_level_counts_and_escaped_names_are_names() {
        let a = asked(
            r#"{"messages":[{"model":"inner","content":"\"model\":\"x\" {\\"}],"tools":{"model":1,"stream":true},"mod\u0065l":"tin\u0079","stream":null}"#,
        );
        assert_eq!((a.model.as_str(), a.stream, a.wants_usage), ("tiny", false, false));
    }

    #[test]
    fn a_body_that_two_readers_would_read_differently_is_refused() {
        for body in [
            r#"{"model":"a","model":"b"}"#,
            r#"{"model":"a","stream":false,"stream":true}"#,
            r#"{"model":"a","max_tokens":5,"max_tokens":900000}"#,
            r#"{"model":"a","max_completion_tokens":5,"max_completion_tokens":null}"#,
            r#"{"model":"a","stream_options":{"include_usage":true,"include_usage":false}}"#,
        ] {
            let problem = read(body.as_bytes()).unwrap_err();
            assert!(problem.message.contains("twice") || problem.message.contains("at most once"), "{body}: {problem}");
        }
        assert!(read(br#"{"model":"a","max_tokens":5,"max_completion_tokens":6}"#).is_ok());
    }

    /// Most memory this process ever had, in KiB.
    fn peak() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches("kB").trim().parse().unwrap()
    }

    #[test]
    fn a_body_of_millions_of_members_takes_no_memory_besides_itself() {
        let many = |member: &str| format!(r#"{{{}"model":"a"}}"#, member.repeat(3_000_000));
        let (unknown, limits) = (many(r#""":0,"#), many(r#""max_tokens":1,"#));
        let before = peak();
        assert_eq!(asked(&unknown).model, "a");
        assert!(read(limits.as_bytes()).unwrap_err().message.contains("max_tokens"));
        assert!(peak() - before < 64 << 10, "{} KiB", peak() - before);
    }

    #[test]
    fn a_refusal_names_the_field_or_the_place() {
        for (body, word) in [
            ("", "JSON"),
            ("not json", "JSON"),
            (r#"{"model":"a""#, "JSON"),
            (r#"{"model":"a"} x"#, "JSON"),
            ("[1]", "object"),
            (r#""model""#, "object"),
            ("{}", "names no model"),
            (r#"{"model":5}"#, "string"),
            (r#"{"model":"a","stream":"yes"}"#, "true or false"),
            (r#"{"model":"a","stream_options":3}"#, "object"),
            ("{\"model\":\"\u{0}\"}", "JSON"),
        ] {
            let problem = read(body.as_bytes()).unwrap_err();
            assert!(problem.message.contains(word), "{body}: {problem}");
            assert_eq!(problem.kind, ProblemKind::BadRequest);
        }
        let problem = read(b"{\"model\":\"a\",\"x\":\"caf\xe9\"}").unwrap_err();
        assert!(problem.message.contains("not UTF-8 (from byte 21 on)"), "{problem}");
    }

    #[test]
    fn a_body_that_is_nested_so_deep_that_engines_die_of_it_is_refused_and_runs_nothing_out_of_stack() {
        let nested = |levels: usize| format!(r#"{{"model":"a","x":{}0{}}}"#, "[".repeat(levels), "]".repeat(levels));
        assert_eq!(asked(&nested(900)).model, "a");
        for deep in [nested(1000), nested(200_000)] {
            let problem = read(deep.as_bytes()).unwrap_err();
            assert!(problem.message.contains("nested deeper than 1000 levels"), "{problem}");
            assert!(talk(deep.as_bytes()).is_err());
        }
    }

    #[test]
    fn asking_for_usage_changes_nothing_else() {
        for (before, after) in [
            (r#" {"model":"a"}"#, r#" {"stream_options":{"include_usage":true},"model":"a"}"#),
            (r#"{"stream_options":null,"model":"a"}"#, r#"{"stream_options":{"include_usage":true},"model":"a"}"#),
            (r#"{"stream_options":{ },"model":"a"}"#, r#"{"stream_options":{"include_usage":true },"model":"a"}"#),
            (
                r#"{"stream_options":{"x":{"include_usage":1}},"model":"a"}"#,
                r#"{"stream_options":{"include_usage":true,"x":{"include_usage":1}},"model":"a"}"#,
            ),
            (r#"{"stream_options":{"include_usage" : false},"model":"a"}"#, r#"{"stream_options":{"include_usage" : true},"model":"a"}"#),
        ] {
            assert_eq!(with_usage(before), after);
        }
    }

    #[test]
    fn a_limit_beyond_the_window_is_taken_out_and_all_other_bytes_stay() {
        let edited = |text: &'static str| {
            Asked { stream: true, ..asked(text) }.edited(&Bytes::from_static(text.as_bytes()), true, Some(Tokens(8192))).to_bytes()
        };
        assert_eq!(
            edited(r#"{ "messages":[{"max_tokens":999999}], "max_tokens" : 128000,"stream_options":{},"max_completion_tokens":100,"model":"a"}"#),
            r#"{ "messages":[{"max_tokens":999999}], "max_tokens" : null,"stream_options":{"include_usage":true},"max_completion_tokens":100,"model":"a"}"#
        );
        let odd = r#"{"model":"a","max_tokens":-1,"max_completion_tokens":"many","stream_options":{"include_usage":true}}"#;
        assert_eq!(edited(odd), odd, "the engine says what is wrong with it");
    }

    #[test]
    fn an_answer_in_one_piece_can_be_asked_for_as_a_stream() {
        for (before, after) in [
            (r#"{"model":"a"}"#, r#"{"stream_options":{"include_usage":true},"stream":true,"model":"a"}"#),
            (r#"{"stream":false,"model":"a"}"#, r#"{"stream_options":{"include_usage":true},"stream":true,"model":"a"}"#),
            (r#"{"model":"a","stream" : null}"#, r#"{"stream_options":{"include_usage":true},"model":"a","stream" : true}"#),
        ] {
            assert_eq!(asked(before).edited(&Bytes::from_static(before.as_bytes()), true, None).to_bytes(), after);
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), any::<i64>().prop_map(Value::from), ".{0,12}".prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(
                    prop_oneof![Just("model".to_owned()), Just("stream".to_owned()), ".{0,8}".prop_map(String::from)],
                    inner,
                    0..4
                )
                .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_else_is_in_a_body_the_model_is_found_and_nothing_else_changes(
            rest in prop::collection::btree_map(".{0,10}", any_json(), 0..6), model in ".{0,20}", stream in any::<bool>(),
            options in prop_oneof![Just(None), Just(Some(json!(null))), Just(Some(json!({}))), Just(Some(json!({"a": [1], "include_usage": false})))],
        ) {
            let mut object: serde_json::Map<String, Value> = rest.into_iter().collect();
            object.insert("model".to_owned(), json!(model));
            object.insert("stream".to_owned(), json!(stream));
            object.remove("stream_options");
            if let Some(options) = options {
                object.insert("stream_options".to_owned(), options);
            }
            for text in [serde_json::to_string(&object).unwrap(), serde_json::to_string_pretty(&object).unwrap()] {
                let read_once = read(text.as_bytes()).unwrap();
                prop_assert_eq!((&read_once.model, read_once.stream, read_once.wants_usage), (&model, stream, false));
                let edited = with_usage(&text);
                prop_assert!(read(&edited).unwrap().wants_usage);
                let mut seen: serde_json::Map<String, Value> = serde_json::from_slice(&edited).unwrap();
                let mut wanted = object.clone();
                let got = seen.remove("stream_options").unwrap();
                let mut expected = wanted.remove("stream_options").filter(|v| !v.is_null()).unwrap_or_else(|| json!({}));
                expected["include_usage"] = json!(true);
                prop_assert_eq!(got, expected);
                prop_assert_eq!(seen, wanted);
            }
        }

        #[test]
        fn rubbish_is_refused_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
