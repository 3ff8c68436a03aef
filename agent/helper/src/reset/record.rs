//! A wish for a reset as it waits for the next start: what, who asked, and to which machine, state and stretch of time it is bound.
//!
//! Pure: text and facts in, records and texts out.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::scope::{Asker, Scope};

/// The facts a record is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Here {
    /// The machine's own id on the state partition; nothing on a machine that was never started.
    pub machine_id: Option<String>,
    /// What the board says it is (product UUID); nothing where it says none.
    pub product: Option<String>,
    /// The id of the state file system.
    pub state: u64,
}

impl Here {
    /// One text that stands for all of it; another machine, board or file system has another.
    #[must_use]
    pub fn seal(&self) -> String {
        let mut hash = Sha256::new();
        for part in [self.machine_id.as_deref(), self.product.as_deref(), Some(self.state.to_string().as_str())] {
            // Length and presence go in, so that no two sets of facts run together to one text.
            let text = part.unwrap_or_default();
            hash.update([u8::from(part.is_some())]);
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        hex::encode(hash.finalize())
    }
}

/// One wish. It is good for one machine, one start and one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Version of this form.
    pub version: u32,
    /// Its own id, 32 hexadecimal digits, never used again.
    pub id: String,
    /// What is to be reset.
    #[serde(flatten)]
    pub scope: Scope,
    /// Who asked.
    pub asked_by: Asker,
    /// [`Here::seal`] of the machine it was asked on.
    pub machine: String,
    /// The epoch it was asked in; every start begins another one.
    pub epoch: String,
}

/// The version of the form written here.
pub const VERSION: u32 = 1;

impl Record {
    /// A fresh wish.
    #[must_use]
    pub fn new(id: String, scope: Scope, asked_by: Asker, here: &Here, epoch: &str) -> Self {
        Self { version: VERSION, id, scope, asked_by, machine: here.seal(), epoch: epoch.to_owned() }
    }

    /// Reads a record back; nothing when it is not one of this form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let record: Self = serde_json::from_str(text).ok()?;
        (record.version == VERSION && is_id(&record.id)).then_some(record)
    }

    /// The record as text.
    #[must_use]
    pub fn render(&self) -> String {
        serde_json::to_string(self).map(|text| format!("{text}\n")).unwrap_or_default()
    }
}

/// Whether a text has the form of an id.
#[must_use]
pub fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Sixteen random bytes as an id.
#[must_use]
pub fn id(bytes: [u8; 16]) -> String {
    hex::encode(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn here() -> Here {
        Here { machine_id: Some("a".repeat(32)), product: Some("p".into()), state: 7 }
    }

    #[test]
    fn another_machine_board_or_disk_has_another_seal() {
        let seal = here().seal();
        assert_eq!(seal, here().seal());
        for other in [
            Here { machine_id: Some("b".repeat(32)), ..here() },
            Here { machine_id: None, ..here() },
            Here { product: Some("q".into()), ..here() },
            Here { product: None, ..here() },
            Here { state: 8, ..here() },
        ] {
            assert_ne!(other.seal(), seal, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn facts_never_run_together_to_one_seal(a in "[a-z]{0,4}", b in "[a-z]{0,4}", c in "[a-z]{0,4}", d in "[a-z]{0,4}") {
            let one = Here { machine_id: Some(a.clone()), product: Some(b.clone()), state: 1 };
            let two = Here { machine_id: Some(c.clone()), product: Some(d.clone()), state: 1 };
            prop_assert_eq!(one.seal() == two.seal(), a == c && b == d);
        }

        #[test]
        fn any_text_is_a_record_or_nothing(text in ".{0,200}") {
            let _ = Record::parse(&text);
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        for scope in [Scope::Network, Scope::Admin, Scope::Factory { keep_models: true }, Scope::Factory { keep_models: false }] {
            let record = Record::new(id([7; 16]), scope, Asker::Screen, &here(), "e");
            assert_eq!(Record::parse(&record.render()), Some(record));
        }
    }

    #[test]
    fn a_torn_or_foreign_record_is_none() {
        let text = Record::new(id([7; 16]), Scope::Network, Asker::Screen, &here(), "e").render();
        assert_eq!(Record::parse(&text[..text.len() / 2]), None);
        assert_eq!(Record::parse(&text.replace("\"version\":1", "\"version\":2")), None);
        assert_eq!(Record::parse(&text.replace("0707", "../.")), None);
        assert_eq!(Record::parse(""), None);
    }
}
