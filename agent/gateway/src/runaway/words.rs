//! Takes the model's words out of the bytes of an event stream, without a tree and without copying: a few members of the chunks, found by
//! name, as they stand in the JSON. Escapes stay escapes. Rubbish gives no words.

use memchr::{memchr, memchr3};

use super::Said;

/// Longest name that matters.
const NAME: usize = 17;

/// See the module.
#[derive(Default)]
pub(super) struct Words {
    state: State,
    name: [u8; NAME + 1],
    length: usize,
    escaped: bool,
}

#[derive(Clone, Copy, Default)]
enum State {
    /// Between strings.
    #[default]
    Between,
    /// In a string that may be a name.
    Name,
    /// Behind it.
    Named,
    /// Behind its colon.
    Value(Option<Said>),
    /// In a string whose words count.
    Words(Said),
    /// In another string behind a name.
    Other,
}

impl Words {
    /// Reads on; each piece of words goes to `said`.
    pub(super) fn read(&mut self, chunk: &[u8], mut said: impl FnMut(Said, &[u8])) {
        let mut from = 0;
        while from < chunk.len() {
            match self.state {
                State::Words(_) | State::Other | State::Name => {
                    let until = self.string(&chunk[from..]).map_or(chunk.len(), |at| from + at);
                    let piece = &chunk[from..until];
                    match self.state {
                        State::Words(kind) if !piece.is_empty() => said(kind, piece),
                        State::Name => self.name(piece),
                        _ => {}
                    }
                    if until < chunk.len() {
                        // A line break is in no string: the line was no JSON.
                        let closed = chunk[until] == b'"';
                        self.state = if closed && matches!(self.state, State::Name) { State::Named } else { State::Between };
                        self.escaped = false;
                    }
                    from = until + 1;
                }
                // Nothing but a string matters here.
                State::Between => match memchr(b'"', &chunk[from..]) {
                    Some(at) => {
                        self.state = self.between(b'"');
                        from += at + 1;
                    }
                    None => return,
                },
                State::Named | State::Value(_) => {
                    self.state = self.between(chunk[from]);
                    from += 1;
                }
            }
        }
    }

    /// Where a string ends, or a line; nowhere in these bytes: `None`.
    fn string(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut from = 0;
        if std::mem::take(&mut self.escaped) && !bytes.is_empty() {
            if bytes[0] == b'\n' {
                return Some(0);
            }
            from = 1;
        }
        while let Some(at) = memchr3(b'"', b'\n', b'\\', &bytes[from..]).map(|at| from + at) {
            if bytes[at] != b'\\' {
                return Some(at);
            }
            match bytes.get(at + 1) {
                Some(b'\n') => return Some(at + 1),
                Some(_) => from = at + 2,
                None => {
                    self.escaped = true;
                    return None;
                }
            }
        }
        None
    }

    fn name(&mut self, piece: &[u8]) {
        for &byte in piece.iter().take(NAME + 1 - self.length) {
            self.name[self.length] = byte;
            self.length += 1;
        }
    }

    fn between(&mut self, byte: u8) -> State {
        match (self.state, byte) {
            (State::Value(Some(kind)), b'"') => State::Words(kind),
            (State::Value(None), b'"') => State::Other,
            (_, b'"') => {
                self.length = 0;
                State::Name
            }
            (State::Named, b':') => State::Value(match &self.name[..self.length] {
                b"content" | b"text" | b"arguments" => Some(Said::Text),
                b"reasoning_content" | b"reasoning" => Some(Said::Thinking),
                _ => None,
            }),
            (same @ (State::Named | State::Value(_)), b' ' | b'\t') => same,
            _ => State::Between,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(stream: &[u8], size: usize) -> (String, String) {
        let (mut words, mut text, mut thought) = (Words::default(), Vec::new(), Vec::new());
        for piece in stream.chunks(size) {
            words.read(piece, |said, bytes| if said == Said::Text { text.extend_from_slice(bytes) } else { thought.extend_from_slice(bytes) });
        }
        (String::from_utf8(text).unwrap(), String::from_utf8(thought).unwrap())
    }

    #[test]
    fn only_the_models_words_are_words_wherever_the_stream_is_cut() {
        let stream = concat!(
            ": it's \"content\":\"a comment\"\n\n",
            "data: {\"id\":\"content\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\" : \"a\\\"content\\\":\\\"b\\\\\"}}],\"model\":\"text\"}\n\n",
            "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hmm\",\"reasoning_content_x\":\"no\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\"\"}}]}}]}\n\n",
            "data: [\"content\",\"not this\"]\n\n",
            "data: \"cut\ndata: {\"text\":\"é\"}\n\n",
        );
        let whole = (r#"a comment"#.to_owned() + r#"a\"content\":\"b\\{\"x\"é"#, "hmm".to_owned());
        for size in 1..stream.len() {
            let got = all(stream.as_bytes(), size);
            assert_eq!(got, whole, "{size}");
        }
    }

    proptest! {
        #[test]
        fn rubbish_is_never_a_panic(bytes in prop::collection::vec(prop_oneof![Just(b'"'), Just(b'\\'), Just(b':'), Just(b'\n'), any::<u8>()], 0..300), size in 1usize..40) {
            let mut words = Words::default();
            for piece in bytes.chunks(size) {
                words.read(piece, |_, _| ());
            }
        }
    }
}
