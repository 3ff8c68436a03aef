//! How long an answer has been thinking without a word of the answer itself.
//!
//! Thinking is told apart by the engine, or stands in the text between `<think>` at its beginning and `</think>`.

use super::Said;

const OPEN: &[u8] = b"<think>";
const CLOSE: &[u8] = b"</think>";
/// The opening stands at the very beginning, or it is a word of the answer.
const BEGINNING: usize = 64;

/// See the module.
#[derive(Default)]
pub(super) struct Thinking {
    /// The beginning of the text; empty once it is known how it begins.
    head: Vec<u8>,
    begun: bool,
    /// Inside of tags.
    open: bool,
    /// The last bytes inside of tags, in case the closing one is cut.
    tail: Vec<u8>,
    bytes: u64,
}

impl Thinking {
    /// Takes the next words; returns the bytes of thinking so far, 0 once it answers.
    pub(super) fn feed(&mut self, said: Said, delta: &[u8]) -> u64 {
        match said {
            Said::Thinking => self.bytes += delta.len() as u64,
            Said::Text if delta.is_empty() => {}
            Said::Text if self.open => self.inside(delta),
            Said::Text if !self.begun => self.beginning(delta),
            Said::Text => self.bytes = 0,
        }
        self.bytes
    }

    fn beginning(&mut self, delta: &[u8]) {
        self.head.extend_from_slice(&delta[..delta.len().min(BEGINNING)]);
        if let Some(at) = find(&self.head, OPEN) {
            (self.begun, self.open) = (true, true);
            let rest = self.head.split_off(at + OPEN.len());
            self.head = Vec::new();
            self.inside(&rest);
        } else if self.head.len() >= BEGINNING {
            self.begun = true;
            self.head = Vec::new();
            self.bytes = 0;
        }
    }

    fn inside(&mut self, delta: &[u8]) {
        self.bytes += delta.len() as u64;
        // A closing tag that lies across two pieces, and one that lies in this one.
        self.tail.extend_from_slice(&delta[..delta.len().min(CLOSE.len())]);
        if find(&self.tail, CLOSE).is_some() || find(delta, CLOSE).is_some() {
            (self.open, self.bytes, self.tail) = (false, 0, Vec::new());
            return;
        }
        let last = &delta[delta.len().saturating_sub(CLOSE.len())..];
        if last.len() == CLOSE.len() {
            self.tail.clear();
            self.tail.extend_from_slice(last);
        } else if self.tail.len() > CLOSE.len() {
            self.tail.drain(..self.tail.len() - CLOSE.len());
        }
    }
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|at| at == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(text: &str, size: usize) -> u64 {
        let mut thinking = Thinking::default();
        text.as_bytes().chunks(size).map(|piece| thinking.feed(Said::Text, piece)).last().unwrap()
    }

    #[test]
    fn tags_are_found_wherever_the_pieces_are_cut() {
        for size in 1..40 {
            let open = format!("\n<think>{}", "hmm <thing> ".repeat(20));
            assert!(fed(&open, size) >= 200, "{size}");
            assert_eq!(fed(&format!("{open}</think>so: <think> is a tag, and so is the other one"), size), 0, "{size}");
            assert_eq!(fed(&format!("{} then <think> stands here {}", "word ".repeat(20), "x".repeat(300)), size), 0, "{size}");
        }
    }
}
