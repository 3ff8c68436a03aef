//! Finds the top-level `usage` of a JSON answer while it goes by, whatever its size and wherever it is cut.
//!
//! A small state machine over bytes: it knows how deep it is, whether it is inside a string, and what the current top-level name is.
//! It keeps at most one `usage` value, bounded, and never the answer. It does not validate: rubbish gives no usage.

use super::Usage;

/// A usage object is some hundred bytes; a larger one is not believed.
const MOST: usize = 8 * 1024;
const NAME: &[u8] = b"usage";

/// See the module.
#[derive(Default)]
pub(crate) struct JsonTap {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// At the top level a string before a colon is a name.
    naming: bool,
    name: Vec<u8>,
    /// The value being kept, while it is that of `usage`.
    kept: Option<Vec<u8>>,
    usage: Option<Vec<u8>>,
    begun: bool,
}

impl JsonTap {
    /// Looks at the next bytes.
    pub(crate) fn watch(&mut self, chunk: &[u8]) {
        self.begun |= !chunk.is_empty();
        for &byte in chunk {
            self.step(byte);
        }
    }

    /// What was found.
    pub(crate) fn usage(&self) -> Usage {
        self.usage.as_deref().map(Usage::read).unwrap_or_default()
    }

    /// Whether anything came.
    pub(crate) const fn has_begun(&self) -> bool {
        self.begun
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            if self.naming && self.depth == 1 && self.name.len() <= NAME.len() && byte != b'"' {
                self.name.push(byte);
            }
            match (self.escaped, byte) {
                (true, _) => self.escaped = false,
                (false, b'\\') => self.escaped = true,
                (false, b'"') => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                if self.naming && self.depth == 1 {
                    self.name.clear();
                }
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                self.naming = self.depth == 1 && byte == b'{';
                self.keep(byte);
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.value_ends();
                } else {
                    self.keep(byte);
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b',' if self.depth == 1 => {
                self.value_ends();
                self.naming = true;
            }
            b':' if self.depth == 1 && self.naming => {
                self.naming = false;
                self.kept = (self.name == NAME).then(Vec::new);
            }
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if let Some(kept) = &mut self.kept {
            if kept.len() < MOST {
                kept.push(byte);
            } else {
                self.kept = None;
            }
        }
    }

    fn value_ends(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.usage = Some(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use warden_domain::units::Tokens;

    use super::*;

    const ANSWER: &str = r#"{"choices":[{"message":{"content":"say \"usage\": {\"prompt_tokens\":7} \\","usage":{"prompt_tokens":8}}}],
        "object":"chat.completion", "usage" : {"completion_tokens":5,"prompt_tokens":29,"prompt_tokens_details":{"cached_tokens":1}} ,"timings":{"usage":{"prompt_tokens":9}}}"#;

    fn found(pieces: &[&[u8]]) -> Usage {
        let mut tap = JsonTap::default();
        for piece in pieces {
            tap.watch(piece);
        }
        tap.usage()
    }

    #[test]
    fn the_answers_own_words_are_never_taken_for_its_usage() {
        let whole = found(&[ANSWER.as_bytes()]);
        assert_eq!((whole.prompt, whole.cached, whole.completion), (Some(Tokens(29)), Some(Tokens(1)), Some(Tokens(5))));
        assert_eq!(found(&[br#"{"x":"usage","y":{"usage":{"prompt_tokens":1}}}"#]), Usage::default());
        assert_eq!(found(&[br#"[{"usage":{"prompt_tokens":1}}]"#]), Usage::default());
        assert_eq!(found(&[br#"{"usage":null}"#]), Usage::default());
    }

    #[test]
    fn a_cut_at_every_byte_finds_the_same() {
        let (bytes, whole) = (ANSWER.as_bytes(), found(&[ANSWER.as_bytes()]));
        for at in 0..=bytes.len() {
            assert_eq!(found(&[&bytes[..at], &bytes[at..]]), whole, "cut at {at}");
        }
    }

    #[test]
    fn an_endless_usage_does_not_eat_memory() {
        let mut tap = JsonTap::default();
        tap.watch(b"{\"usage\":{\"x\":\"");
        for _ in 0..1000 {
            tap.watch(&[b'a'; 1000]);
        }
        tap.watch(b"\"}}");
        assert_eq!(tap.usage(), Usage::default());
    }

    proptest! {
        #[test]
        fn rubbish_is_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            found(&[&bytes]);
        }
    }
}
