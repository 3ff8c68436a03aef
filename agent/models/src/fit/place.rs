//! The memory a model may get.

use warden_domain::units::Bytes;

/// A card, as the reader saw it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its place in the list.
    pub index: u32,
    /// All of its memory; `None` when its driver does not tell.
    pub total: Option<Bytes>,
    /// Of that, in use.
    pub used: Option<Bytes>,
}

impl Card {
    pub(super) fn free(&self) -> Option<u64> {
        Some(self.total?.0.saturating_sub(self.used?.0))
    }
}

/// Where a model is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In host memory; `None` where the system does not tell.
    Host {
        /// All of it.
        total: Option<Bytes>,
        /// What programs can still get.
        available: Option<Bytes>,
    },
    /// On cards.
    Cards(Vec<Card>),
}
