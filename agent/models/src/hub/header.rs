//! Headers over HTTP: the first 64 KiB of a file, then twice as much, until what is asked for was seen or the bound is met.

use std::time::Duration;

use tokio::sync::Semaphore;

use super::{
    client::{Client, Wanted},
    fault::Fault,
};
use crate::gguf::{self, Keys, Reach, read_keys};

const FIRST: usize = 64 << 10;
/// Vocabularies of 256 thousand tokens take 7 to 12 MiB.
const MOST: usize = 32 << 20;
/// The bound for a list of many files.
const MOST_QUICK: usize = 1 << 20;
/// So long a long header waits for room.
const ROOM_WITHIN: Duration = Duration::from_secs(60);

/// Why a header tells nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// The hub.
    Hub(Fault),
    /// The file.
    File(gguf::Fault),
}

/// Reads the keys of a GGUF file; with `whole` also its table of tensors. Headers longer than those of a quick look are held in memory by as
/// few at a time as `room` has permits; others wait their turn, but not for ever.
pub(crate) async fn keys(client: &Client, wanted: &Wanted, size: u64, whole: bool, room: &Semaphore) -> Result<Keys, Unread> {
    let enough = if whole { Reach::Whole } else { Reach::Vocabulary };
    let most = if whole { MOST } else { MOST_QUICK };
    let mut begin: Vec<u8> = Vec::new();
    let mut length = FIRST;
    let mut permit = None;
    loop {
        if length > MOST_QUICK && permit.is_none() {
            let waited = tokio::time::timeout(ROOM_WITHIN, room.acquire()).await;
            permit = Some(waited.ok().and_then(Result::ok).ok_or(Unread::Hub(Fault::Busy))?);
        }
        let here = length.min(usize::try_from(size).unwrap_or(usize::MAX)).max(1);
        let (from, piece) = client.piece(wanted, begin.len() as u64, here as u64).await.map_err(Unread::Hub)?;
        begin.truncate(usize::try_from(from).unwrap_or(0));
        begin.extend(piece);
        let (all, got) = (here as u64 >= size, begin.len());
        // Long vocabularies are walked off the async workers.
        let walked = tokio::task::spawn_blocking(move || (read_keys(&begin, size), begin)).await;
        let (keys, back) = walked.map_err(|_| Unread::File(gguf::Fault::Unreadable))?;
        let keys = keys.map_err(Unread::File)?;
        if keys.reach >= enough || all || length >= most || got < here {
            return Ok(keys);
        }
        begin = back;
        length = length.saturating_mul(2);
    }
}
