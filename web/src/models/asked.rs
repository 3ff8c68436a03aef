//! What the pages of "by name" ask for: a repository, and the place to reckon with. Read from an address and written back into one.

use std::fmt::Write as _;

use warden_domain::{
    Problem, ProblemKind,
    fit::{FitAsk, FitWhere},
    gpu::GpuSnapshot,
    ids::GpuId,
    units::Tokens,
};

use crate::catalogue::Text;

/// The fields of an address, all of them text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) repo: String,
    pub(crate) revision: String,
    pub(crate) filename: String,
    pub(crate) cards: Vec<u32>,
    pub(crate) context: String,
    pub(crate) slots: String,
}

impl Asked {
    /// The chosen cards by their identities.
    pub(crate) fn cards_of(&self, seen: &GpuSnapshot) -> Vec<GpuId> {
        let one = |index: &u32| seen.cards.iter().find(|card| card.index == *index).map(|card| card.id.clone());
        self.cards.iter().filter_map(one).collect()
    }

    /// From the pairs of an address or a form; fields it does not know are passed over.
    pub(crate) fn read(pairs: &[(String, String)]) -> Self {
        let one = |name: &str| pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value.trim().to_owned()).unwrap_or_default();
        let cards = pairs.iter().filter(|(name, _)| name == "card").filter_map(|(_, value)| value.parse().ok()).collect();
        Self { repo: one("repo"), revision: one("revision"), filename: one("filename"), cards, context: one("context"), slots: one("slots") }
    }

    /// The question of a verdict; a number that is none is named.
    pub(crate) fn fit(&self, t: &Text) -> Result<FitAsk, Problem> {
        Ok(FitAsk {
            repo: self.repo.clone(),
            revision: self.revision.clone(),
            filename: Some(self.filename.clone()).filter(|name| !name.is_empty()),
            at: if self.cards.is_empty() { FitWhere::Host } else { FitWhere::Indices(self.cards.clone()) },
            context: number(&self.context, t.new_context, t)?.map(Tokens),
            slots: number(&self.slots, t.new_slots, t)?,
            ..FitAsk::default()
        })
    }

    /// An address of ours with these fields.
    pub(crate) fn link(&self, path: &str) -> String {
        let mut out = format!("{path}?repo={}", encoded(&self.repo));
        for (name, value) in [("revision", &self.revision), ("filename", &self.filename), ("context", &self.context), ("slots", &self.slots)] {
            if !value.is_empty() {
                let _a_string_takes_everything = write!(out, "&{name}={}", encoded(value));
            }
        }
        for card in &self.cards {
            let _a_string_takes_everything = write!(out, "&card={card}");
        }
        out
    }
}

/// A whole number out of a field; nothing when it is empty.
pub(crate) fn number<N: std::str::FromStr>(text: &str, field: &str, t: &Text) -> Result<Option<N>, Problem> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if digits.is_empty() {
        return Ok(None);
    }
    digits.parse().map(Some).map_err(|_| Problem::new(ProblemKind::Invalid, t.new_not_number(field)).hint(t.new_not_number_body))
}

fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'/') {
            out.push(byte as char);
        } else {
            let _a_string_takes_everything = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::EN;

    #[test]
    fn what_was_asked_comes_back_from_its_own_address() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let asked = Asked::read(&[pair("repo", " a/b "), pair("card", "0"), pair("card", "2"), pair("context", "4 096"), pair("odd", "x")]);
        assert_eq!((asked.repo.as_str(), asked.cards.as_slice()), ("a/b", &[0, 2][..]));
        assert_eq!(asked.link("/ui/x"), "/ui/x?repo=a/b&context=4%20096&card=0&card=2");
        assert_eq!(asked.fit(&EN).unwrap().context, Some(Tokens(4096)));
        let bad = Asked { context: "many".to_owned(), ..asked };
        assert!(bad.fit(&EN).unwrap_err().message.contains("Context window"));
    }
}
