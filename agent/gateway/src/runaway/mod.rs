//! The runaway guard: notices an answer that repeats itself, never stops thinking, or never ends, while it goes by.
//!
//! In: the bytes of an engine's stream, cut anywhere (`watch`), or what the model said (`feed`). Out: once, what is wrong. Pure; some
//! kilobytes of memory for each stream and a few nanoseconds for each byte. What is done about it is the relay's affair: nothing, a note,
//! or the end of the answer as if it had come to its limit of tokens.
//!
//! It judges only what no sensible answer does: long tables, code, lists of zeros and rulers of dashes stay below its limits. An answer
//! that goes in circles with small changes is noticed by its length at last.

mod cycle;
mod thinking;
mod words;

use cycle::Cycle;
use thinking::Thinking;
use words::Words;

/// What kind of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The answer: text, arguments of a call.
    Text,
    /// Thinking that the engine tells apart.
    Thinking,
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runaway {
    /// The same words again and again.
    Repetition,
    /// It thinks and thinks.
    Thinking,
    /// It is longer than any answer should be.
    Length,
}

impl Runaway {
    /// The word for logs and for the last chunk of an answer that was ended.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Repetition => "runaway_repetition",
            Self::Thinking => "runaway_thinking",
            Self::Length => "runaway_length",
        }
    }
}

/// What is not normal any more, in bytes of the answer as it stands in the engine's JSON (about four for a token).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The same words at least so many times in a row …
    pub cycles: usize,
    /// … and at least so many bytes of them.
    pub cycle_bytes: usize,
    /// Thinking without a word of the answer.
    pub thinking: u64,
    /// Everything together.
    pub length: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cycles: 20, cycle_bytes: 4096, thinking: 256 << 10, length: 1 << 20 }
    }
}

/// See the module. One for each answer.
pub(crate) struct Guard {
    limits: Limits,
    words: Words,
    cycle: Cycle,
    thinking: Thinking,
    length: u64,
    found: bool,
}

impl Guard {
    /// A guard for one answer.
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, words: Words::default(), cycle: Cycle::default(), thinking: Thinking::default(), length: 0, found: false }
    }

    /// Looks at the next bytes of an event stream of chat or completion chunks. Tells what it finds once; afterwards it looks no more.
    pub(crate) fn watch(&mut self, chunk: &[u8]) -> Option<Runaway> {
        if self.found {
            return None;
        }
        let mut words = std::mem::take(&mut self.words);
        let mut found = None;
        words.read(chunk, |said, text| found = found.or_else(|| self.feed(said, text)));
        self.words = words;
        found
    }

    /// Takes the next words of the answer.
    pub(crate) fn feed(&mut self, said: Said, delta: &[u8]) -> Option<Runaway> {
        if self.found {
            return None;
        }
        self.length += delta.len() as u64;
        let thinks = self.thinking.feed(said, delta);
        let found = if self.cycle.feed(delta, self.limits.cycles, self.limits.cycle_bytes) {
            Some(Runaway::Repetition)
        } else if thinks > self.limits.thinking {
            Some(Runaway::Thinking)
        } else {
            (self.length > self.limits.length).then_some(Runaway::Length)
        };
        self.found = found.is_some();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(member: &str, text: &str) -> String {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{{}:{}}}}}]}}\n\n", serde_json::json!(member), serde_json::json!(text))
    }

    fn found(pieces: impl IntoIterator<Item = String>) -> Option<Runaway> {
        let mut guard = Guard::new(Limits::default());
        pieces.into_iter().find_map(|piece| guard.watch(piece.as_bytes()))
    }

    #[test]
    fn the_same_words_again_and_again_are_noticed_in_text_thinking_and_arguments() {
        let words = ["I am", " sorry,", " I cannot", " do that. \"No\"\n"];
        for member in ["content", "reasoning_content", "reasoning", "text", "arguments"] {
            let looped = words.iter().cycle().take(2000).map(|text| chunk(member, text));
            assert_eq!(found(looped), Some(Runaway::Repetition), "{member}");
        }
        let said_once_before = std::iter::once(chunk("content", &"All different words come first. ".chars().rev().collect::<String>()));
        assert_eq!(found(said_once_before.chain(std::iter::repeat_n(chunk("content", "ha"), 5000))), Some(Runaway::Repetition));
        let whole_lines = "| same | row | of | a | table | that | never | ends | and | is | long | enough |\n";
        assert_eq!(found(std::iter::repeat_n(chunk("content", whole_lines), 200)), Some(Runaway::Repetition));
    }

    #[test]
    fn it_is_told_once() {
        let mut guard = Guard::new(Limits::default());
        let told: Vec<_> = std::iter::repeat_n(chunk("content", "again "), 3000).filter_map(|c| guard.watch(c.as_bytes())).collect();
        assert_eq!(told, [Runaway::Repetition]);
    }

    #[test]
    fn long_tables_code_and_lists_are_no_repetition() {
        let table = (0..3000).map(|n| chunk("content", &format!("| {n} | value | {} | yes |\n", n * 7)));
        assert_eq!(found(table), None);
        let code = (0..1500).map(|n| chunk("content", &format!("    case {n}:\n        return handle_{n}(value);\n        break;\n")));
        assert_eq!(found(code), None);
        let zeros = std::iter::repeat_n(chunk("content", "0, "), 1000);
        assert_eq!(found(zeros), None, "three thousand bytes of the same can be an answer");
        let ruler = std::iter::once(chunk("content", &"-".repeat(2000)));
        assert_eq!(found(ruler), None);
        let rows = (0..15).map(|_| chunk("content", &format!("{}\n", "the same long line of a file ".repeat(7))));
        assert_eq!(found(rows), None, "fifteen times is not many");
    }

    #[test]
    fn thinking_that_never_comes_to_an_answer_is_noticed_and_one_that_does_is_not() {
        let thought = |n: usize| format!("thought number {n} of {} is another one. ", n * n);
        let thoughts = |member: &'static str, count: usize| (0..count).map(move |n| chunk(member, &thought(n)));
        assert_eq!(found(thoughts("reasoning_content", 8000)), Some(Runaway::Thinking));
        let open = std::iter::once(chunk("content", "<thi")).chain([chunk("content", "nk>\n")]);
        assert_eq!(found(open.chain(thoughts("content", 8000))), Some(Runaway::Thinking));
        let closed = thoughts("reasoning_content", 4000).chain(thoughts("content", 6000));
        assert_eq!(found(closed), None);
        let tags =
            std::iter::once(chunk("content", "<think>")).chain(thoughts("content", 4000)).chain([chunk("content", "</th"), chunk("content", "ink>")]);
        assert_eq!(found(tags.chain(thoughts("content", 5000))), None);
        assert_eq!(found(thoughts("content", 8000)), None, "an answer is no thinking");
    }

    #[test]
    fn an_answer_without_end_is_noticed_by_its_length() {
        let lines = (0..60_000).map(|n| chunk("content", &format!("line {n} of the answer, {}\n", n * 31)));
        assert_eq!(found(lines), Some(Runaway::Length));
    }

    #[test]
    fn where_the_stream_is_cut_makes_no_difference() {
        let stream: String = (0..1200).map(|n| chunk(if n % 2 == 0 { "content" } else { "reasoning" }, "\\\"x\" ünd {y}: ")).collect();
        let at = |size: usize| {
            let (mut guard, mut seen) = (Guard::new(Limits::default()), 0);
            for piece in stream.as_bytes().chunks(size) {
                seen += piece.len();
                if let Some(found) = guard.watch(piece) {
                    return Some((found, seen));
                }
            }
            None
        };
        let (found, exactly) = at(1).unwrap();
        assert_eq!(found, Runaway::Repetition);
        for size in [2, 3, 7, 64, 1000] {
            let (same, seen) = at(size).unwrap();
            assert!(same == found && seen >= exactly && seen < exactly + size, "{size}: {seen} {exactly}");
        }
    }

    #[test]
    fn its_memory_stays_small_whatever_comes() {
        let mut guard = Guard::new(Limits { length: u64::MAX, thinking: u64::MAX, ..Limits::default() });
        for n in 0..200_000u64 {
            guard.feed(Said::Text, &n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
        }
        assert!(guard.cycle.held() <= 8 * 1024, "{}", guard.cycle.held());
    }
}
