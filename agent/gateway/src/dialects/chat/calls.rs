//! Puts the pieces of tool calls together, as engines send them: with or without an index, with or without an id, whole or cut
//! anywhere, one after the other or mixed.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Most calls in one answer; more is a model that went astray.
const MOST: usize = 256;

/// A piece of a call.
#[derive(Debug, Deserialize)]
pub(in crate::dialects) struct CallPiece<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    function: Option<FunctionPiece<'a>>,
}

#[derive(Debug, Deserialize)]
struct FunctionPiece<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    /// A string as a rule; some servers send the object itself.
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// A call of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::dialects) struct MadeCall {
    /// The engine's id, or one made here; never twice in an answer.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments as the model wrote them, JSON or not.
    pub arguments: String,
    index: Option<u64>,
}

impl MadeCall {
    /// The arguments when they are a JSON object, as a call must have them; an empty object when they are not.
    pub(in crate::dialects) fn object(&self) -> &str {
        let text = self.arguments.trim();
        let whole = text.starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        if whole { text } else { "{}" }
    }
}

/// The calls of an answer.
#[derive(Debug, Default)]
pub(in crate::dialects) struct Calls(Vec<MadeCall>);

impl Calls {
    /// Adds a piece.
    pub(in crate::dialects) fn add(&mut self, piece: CallPiece<'_>) {
        let name = piece.function.as_ref().and_then(|f| f.name.as_deref()).unwrap_or_default();
        let id = piece.id.as_deref().unwrap_or_default();
        let Some(at) = self.place(piece.index, id, name) else { return };
        let call = &mut self.0[at];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        // Engines repeat the whole name or send it once.
        if call.name.is_empty() {
            name.clone_into(&mut call.name);
        }
        match piece.function.and_then(|f| f.arguments).map(RawValue::get) {
            None | Some("null") => {}
            Some(text) if text.starts_with('"') => {
                if let Ok(text) = serde_json::from_str::<Cow<'_, str>>(text) {
                    call.arguments.push_str(&text);
                }
            }
            Some(object) => call.arguments.push_str(object),
        }
    }

    /// Which call a piece belongs to: that of its index; without one, that of its id; else a new one when it names a tool, and the
    /// last one when it does not. A new id under a known index is a new call: some servers send 0 for all.
    fn place(&mut self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let known = match index {
            Some(index) => self.0.iter().rposition(|c| c.index == Some(index)),
            None if !id.is_empty() => self.0.iter().rposition(|c| c.id == id),
            None if name.is_empty() => self.0.len().checked_sub(1),
            None => None,
        };
        let known = known.filter(|at| {
            let call = &self.0[*at];
            id.is_empty() || call.id.is_empty() || call.id == id || name.is_empty()
        });
        if known.is_some() {
            return known;
        }
        if self.0.len() >= MOST {
            return None;
        }
        self.0.push(MadeCall { index, ..MadeCall::default() });
        Some(self.0.len() - 1)
    }

    /// Bytes that are kept of them.
    pub(in crate::dialects) fn kept(&self) -> usize {
        self.0.iter().map(|call| call.id.len() + call.name.len() + call.arguments.len()).sum()
    }

    /// All of them; one that names no tool is none, and each gets an id of its own.
    pub(in crate::dialects) fn finish(self, seed: &str) -> Vec<MadeCall> {
        let mut calls: Vec<MadeCall> = Vec::with_capacity(self.0.len());
        for (at, mut call) in self.0.into_iter().filter(|c| !c.name.is_empty()).enumerate() {
            if call.id.is_empty() || calls.iter().any(|c| c.id == call.id) {
                call.id = format!("call_{seed}_{at}");
            }
            calls.push(call);
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_together(pieces: &[&str]) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        for piece in pieces {
            calls.add(serde_json::from_str(piece).unwrap());
        }
        calls.finish("s").into_iter().map(|c| (c.id, c.name, c.arguments)).collect()
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.to_owned(), name.to_owned(), arguments.to_owned())
    }

    #[test]
    fn pieces_that_come_mixed_go_to_their_own_calls() {
        let got = put_together(&[
            r#"{"index":0,"id":"a","function":{"name":"read","arguments":""}}"#,
            r#"{"index":1,"id":"b","function":{"name":"list","arguments":"{\"p"}}"#,
            r#"{"index":0,"function":{"arguments":"{\"x\":"}}"#,
            r#"{"index":1,"function":{"arguments":"\":1}"}}"#,
            r#"{"index":0,"function":{"name":null,"arguments":"2}"}}"#,
        ]);
        assert_eq!(got, [call("a", "read", "{\"x\":2}"), call("b", "list", "{\"p\":1}")]);
    }

    #[test]
    fn calls_without_index_or_id_are_told_apart_by_the_tool_they_name() {
        let got = put_together(&[
            r#"{"function":{"name":"read","arguments":"{\"x\""}}"#,
            r#"{"function":{"arguments":":1}"}}"#,
            r#"{"function":{"name":"read","arguments":{"x":2}}}"#,
        ]);
        assert_eq!(got, [call("call_s_0", "read", "{\"x\":1}"), call("call_s_1", "read", "{\"x\":2}")]);
        let same_index = put_together(&[
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}"#,
            r#"{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}"#,
        ]);
        assert_eq!(same_index, [call("a", "f", "{}"), call("b", "g", "{}")]);
    }

    #[test]
    fn an_id_given_twice_is_given_once_and_broken_arguments_are_no_object() {
        let got =
            put_together(&[r#"{"id":"a","index":0,"function":{"name":"f","arguments":"{\"x"}}"#, r#"{"id":"a","index":1,"function":{"name":"f"}}"#]);
        assert_eq!((got[0].0.as_str(), got[1].0.as_str()), ("a", "call_s_1"));
        assert_eq!(MadeCall { arguments: got[0].2.clone(), ..MadeCall::default() }.object(), "{}");
        assert_eq!(MadeCall { arguments: " {\"x\": [1]} ".to_owned(), ..MadeCall::default() }.object(), "{\"x\": [1]}");
    }
}
