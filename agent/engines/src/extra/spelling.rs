//! How an engine's parser reads one word of its command line.
//!
//! A word in, a flag with its name or a value out. Wider than the parsers on purpose: both take fewer spellings than are recognised here.

/// Which parser reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grammar {
    /// llama.cpp: whole names; underscores in long ones count as dashes.
    Exact,
    /// Python's argparse with vLLM's additions: names may be cut short, a value may follow `=`, parts of a name may follow a dot, and a
    /// value may stick to a flag of one letter.
    Argparse,
}

/// What a word is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// A value, or something that stands by itself.
    Value,
    /// `--`.
    End,
    /// A flag.
    Flag(Flag),
}

/// A flag as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    /// Its name as written, with dashes, without a value.
    pub(super) written: String,
    /// The name hides a value behind a space.
    pub(super) split_badly: bool,
    /// The value that follows `=` in the same word.
    pub(super) value: Option<String>,
    /// A part of a flag's value is named after a dot (`--compilation-config.mode`).
    pub(super) dotted: bool,
    /// The name as the parser sees it: long names with dashes for underscores.
    name: String,
    grammar: Grammar,
}

impl Grammar {
    pub(super) fn word(self, word: &str) -> Word {
        if word == "--" {
            return Word::End;
        }
        let Some(body) = word.strip_prefix('-') else { return Word::Value };
        // A number below zero, or a dash that stands for an input.
        if body.is_empty() || body.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Word::Value;
        }
        let end = word.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(word.len());
        let written = word[..end].to_owned();
        let split_badly = word[end..].starts_with(char::is_whitespace);
        let value = word[end..].strip_prefix('=').map(str::to_owned);
        let before_dot = match self {
            Self::Exact => &written,
            Self::Argparse => written.split(['.', '+']).next().unwrap_or_default(),
        };
        let dotted = before_dot.len() < written.len();
        let name = if written.starts_with("--") { before_dot.replace('_', "-") } else { before_dot.to_owned() };
        Word::Flag(Flag { written, split_badly, value, dotted, name, grammar: self })
    }
}

impl Flag {
    /// Whether it is this flag, or its opposite (`--no-…`).
    pub(super) fn is(&self, name: &str) -> bool {
        self.is_wholly(name) || opposite_of(&self.name).is_some_and(|positive| positive == name)
    }

    /// The opposite of this flag, written whole.
    pub(super) fn is_opposite_of(&self, name: &str) -> bool {
        opposite_of(&self.name).is_some_and(|positive| positive == name)
    }

    /// Whether it is this flag, written whole.
    pub(super) fn is_wholly(&self, name: &str) -> bool {
        self.name == name
    }

    /// Whether the parser could take it for this flag, cut short or with a value stuck to it.
    pub(super) fn may_be_short_for(&self, name: &str) -> bool {
        if self.grammar == Grammar::Exact {
            return false;
        }
        let long = name.starts_with("--");
        if self.name.starts_with("--") {
            let cut = |whole: &str| whole.starts_with(&self.name) || opposite_of(&self.name).is_some_and(|positive| whole.starts_with(&positive));
            return long && cut(name);
        }
        let stuck = name.len() == 2 && self.name.starts_with(name);
        !long && (name.starts_with(&self.name) || stuck)
    }
}

/// `--no-metrics` -> `--metrics`.
fn opposite_of(name: &str) -> Option<String> {
    let short = name.strip_prefix("-no-").filter(|rest| !rest.is_empty());
    name.strip_prefix("--no-").filter(|rest| !rest.is_empty()).map(|rest| format!("--{rest}")).or_else(|| short.map(|rest| format!("-{rest}")))
}
