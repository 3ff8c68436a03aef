//! Which conversation a request belongs to.
//!
//! In: the bytes of a body (chat, Messages or Responses), a few headers, whose key it is. Out: a conversation, or none. A conversation
//! is a chain of hashes of its messages under key, session and agent; the longest known chain wins. What clients change from turn to
//! turn without meaning it (`cache_control`, a per-request billing line, spacing, text as a string or as one block) does not count.
//! Ids are hints: they separate conversations, and never join two whose messages differ.

mod book;
mod hash;
mod ids;
mod message;
mod reader;
mod scan;
mod value;

pub use book::{Book, Met, Shelf};
pub use ids::{Ids, find as find_ids};
pub use reader::MOST_NESTED;
pub use scan::{Scan, scan, scan_members};

/// A request as the book looks it up.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Whose key it is.
    pub(crate) owner: u64,
    /// Key, session and agent (and the system prompt where there is no session).
    pub(crate) scope: u64,
    /// The client named a session.
    pub(crate) named: bool,
    /// One hash per message, each over all before it; the newest last, the oldest cut off.
    pub(crate) chain: Vec<u64>,
    /// Messages in all.
    pub(crate) messages: usize,
    /// Nobody but the user has spoken.
    pub(crate) opening: bool,
    /// It brings tools.
    pub(crate) tools: bool,
}

impl Asked {
    /// From what was scanned and the ids found; `key` is who asks.
    #[must_use]
    pub fn new(key: &str, ids: &Ids, scan: Scan) -> Self {
        let named = ids.session.is_some();
        let system = if named { 0 } else { scan.system };
        let scope = hash::of(&(key, &ids.session, &ids.agent, system));
        Self { owner: hash::of(&key), scope, named, chain: scan.chain, messages: scan.messages, opening: scan.opening, tools: scan.tools }
    }

    /// Whether there is anything to tell a conversation by.
    #[must_use]
    pub const fn says_anything(&self) -> bool {
        self.named || self.messages > 0
    }
}
