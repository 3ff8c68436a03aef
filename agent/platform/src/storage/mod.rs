//! Model disks and sticks, through the disk manager (UDisks2) on the system bus.
//!
//! In: what the disk manager says is plugged in, and the disks remembered in the store. Out: the ports `Storage`, `Sources` and
//! `ModelDisks` of the domain. Decisions are pure (`objects`, `classify`, `decide`, `reunite`); `room` and `sources` carry them out. A disk
//! is formatted only by an adoption that a person asked for: nothing here formats by itself, and a remembered disk that is missing stays
//! missing until it is plugged in again.

mod adoption;
mod classify;
mod decide;
mod elsewhere;
mod missing;
mod objects;
mod reunite;
mod room;
mod sources;
mod udisks;

pub use elsewhere::Elsewhere;
pub use room::StorageRoom;
