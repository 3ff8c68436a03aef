//! Downloads of models: resumable, checked, and written down, so that neither a broken line nor a killed agent costs more than a moment.
//!
//! In: a choice of a repository at a commit. Out: its files under their names, each only after its checksum was right, and a registered
//! model. Until then a file lies hidden as `.NAME.part`; a small record beside the models says what is wanted and how far the bytes on
//! the disk are checked. A download that ran when the agent ended goes on by itself at the next start; one that was paused or failed waits
//! for its button.

mod disk;
mod live;
mod owner;
mod part;
mod record;
mod room;
mod transfer;
mod work;

pub use room::{Downloader, DownloaderParts};
pub use transfer::Rules;

pub(crate) use record::unfinished;
