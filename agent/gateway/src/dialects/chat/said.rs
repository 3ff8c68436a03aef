//! What a model says in the chat dialect: a message, or one piece of a streamed one.

use std::{borrow::Cow, ops::Deref};

use serde::Deserialize;

use super::calls::CallPiece;

/// A text, borrowed where it has no escapes. (Serde's own `Option<Cow<str>>` always copies.)
#[derive(Debug, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    /// As a text of its own.
    pub(super) fn into_owned(self) -> String {
        self.0.into_owned()
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The members of a message that are read here.
#[derive(Debug, Deserialize)]
pub(super) struct Said<'a> {
    #[serde(borrow, default)]
    pub content: Option<Text<'a>>,
    /// Thinking, as llama.cpp names it.
    #[serde(borrow, default)]
    pub reasoning_content: Option<Text<'a>>,
    /// Thinking, as newer vLLM names it.
    #[serde(borrow, default)]
    pub reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub refusal: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub tool_calls: Option<Vec<CallPiece<'a>>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_escapes_is_not_copied() {
        let json = r#"{"role":"assistant","content":"plain","reasoning":"with\nbreak","refusal":null}"#;
        let said: Said<'_> = serde_json::from_str(json).unwrap();
        assert!(matches!(said.content, Some(Text(Cow::Borrowed("plain")))));
        assert_eq!(said.reasoning.as_deref(), Some("with\nbreak"));
        assert!(said.refusal.is_none() && said.tool_calls.is_none());
    }
}
