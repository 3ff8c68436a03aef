//! Text of a request, kept as it came.
//!
//! `Quoted` is one string of the body, still escaped and borrowed from it. `Text` is what an engine gets: pieces of such strings and
//! of our own words, joined when they are written. Nothing is decoded unless somebody has to look inside.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::value::RawValue;

use super::json;

/// A string of the body: what lies between its quotes, escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Quoted<'a>(&'a str);

impl<'a> Quoted<'a> {
    /// The string a value is, if it is one.
    pub(super) fn of(value: &'a RawValue) -> Option<Self> {
        value.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).map(Self)
    }

    /// What it says.
    pub(super) fn decoded(self) -> Cow<'a, str> {
        if !self.0.contains('\\') {
            return Cow::Borrowed(self.0);
        }
        let quoted = format!("\"{}\"", self.0);
        // Half of a surrogate pair is the one thing that is a JSON string and no text.
        serde_json::from_str::<String>(&quoted).map_or_else(|_| Cow::Borrowed(self.0), Cow::Owned)
    }

    /// Whether it says exactly this; `word` is plain.
    pub(super) fn is(self, word: &str) -> bool {
        self.0 == word || (self.0.contains('\\') && self.decoded() == word)
    }

    /// What lies between the quotes.
    pub(super) const fn escaped(self) -> &'a str {
        self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Quoted<'a> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let value: &'de RawValue = Deserialize::deserialize(source)?;
        Self::of(value).ok_or_else(|| D::Error::custom("a string is expected"))
    }
}

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece<'a> {
    /// Escaped already.
    Escaped(&'a str),
    /// To be escaped.
    Plain(Cow<'a, str>),
    /// JSON, or a piece of it, that becomes text: to be escaped.
    Json(&'a str),
}

/// Text for an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text<'a>(Vec<Piece<'a>>);

impl<'a> Text<'a> {
    /// Our own words.
    pub(super) fn plain(text: impl Into<Cow<'a, str>>) -> Self {
        Self(vec![Piece::Plain(text.into())])
    }

    /// A JSON value as text, without the blanks between its parts: clients space it as they like.
    pub(super) fn json(value: &'a RawValue) -> Self {
        Self::plain(compact(value.get()))
    }

    /// Adds text of the request.
    pub(super) fn quoted(mut self, text: Quoted<'a>) -> Self {
        self.0.push(Piece::Escaped(text.0));
        self
    }

    /// Adds text of the request to a text that is JSON itself: it is escaped once more.
    pub(super) fn nested(mut self, text: Quoted<'a>) -> Self {
        self.0.push(Piece::Json(text.0));
        self
    }

    /// Adds our own words.
    pub(super) fn then(mut self, text: impl Into<Cow<'a, str>>) -> Self {
        self.0.push(Piece::Plain(text.into()));
        self
    }

    /// Adds another text behind this one, with a blank line between two that say something.
    pub(super) fn paragraph(&mut self, other: Self) {
        // Nothing is kept of a text that says nothing: looking through many of them for each new one would take for ever.
        if other.is_empty() {
            return;
        }
        if !self.is_empty() {
            self.0.push(Piece::Escaped("\\n\\n"));
        }
        self.0.extend(other.0);
    }

    /// Adds another text right behind this one.
    pub(super) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Whether it says nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|piece| match piece {
            Piece::Escaped(text) | Piece::Json(text) => text.is_empty(),
            Piece::Plain(text) => text.is_empty(),
        })
    }

    /// Writes it as one string.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        for piece in &self.0 {
            match piece {
                Piece::Escaped(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Plain(text) => json::escape(out, text),
                Piece::Json(text) => json::escape(out, text),
            }
        }
        out.push(b'"');
    }
}

/// JSON without blanks outside of its strings.
fn compact(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let (mut out, mut inside, mut from, mut at) = (String::new(), false, 0, 0);
    while at < bytes.len() {
        if inside {
            at += json::plain_run(&bytes[at..]);
        }
        match bytes.get(at) {
            Some(b'\\') => at += 1,
            Some(b'"') => inside = !inside,
            Some(b' ' | b'\n' | b'\r' | b'\t') => {
                out.push_str(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[from..]);
    Cow::Owned(out)
}

impl<'a> From<Quoted<'a>> for Text<'a> {
    fn from(text: Quoted<'a>) -> Self {
        Self(vec![Piece::Escaped(text.0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_leaves_as_it_came_and_our_words_are_escaped() {
        let body = r#"["caf\u00e9 \"x\" 🦙","b"]"#;
        let parts: Vec<Quoted<'_>> = serde_json::from_str(body).unwrap();
        assert_eq!(parts[0].decoded(), "café \"x\" 🦙");
        let mut text = Text::from(parts[0]);
        text.paragraph(Text::default());
        text.paragraph(Text::plain("a \"b\"\n").quoted(parts[1]));
        let mut out = Vec::new();
        text.write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#""caf\u00e9 \"x\" 🦙\n\na \"b\"\nb""#);
        assert!(serde_json::from_str::<Quoted<'_>>("3").is_err());
    }

    #[test]
    fn json_is_spaced_one_way_and_strings_keep_their_blanks() {
        assert_eq!(compact("{ \"a b\" : [1,\n 2, \"\\\" x \"] }"), "{\"a b\":[1,2,\"\\\" x \"]}");
        assert!(matches!(compact("{\"a\":1}"), Cow::Borrowed(_)));
    }
}
