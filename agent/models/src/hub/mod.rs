//! The hub of model repositories: what a repository holds, and the headers of its files, over HTTP.
//!
//! In: an address, names of repositories. Out: discoveries and verdicts, or a sentence with what to do. Everything that comes from the
//! hub is untrusted: bounded in size and time, names of files checked, nothing executed. The access token goes to the address it was given
//! for and to no other.

mod address;
mod before;
mod classify;
mod client;
mod config;
mod fault;
mod header;
mod keep;
mod memory;
mod room;
mod shelf;
mod told;
mod tree;

pub use room::{HubParts, HubRoom};

pub(crate) use address::Repo;
pub(crate) use classify::is_projector;
pub(crate) use client::{Wanted, chain};
pub(crate) use fault::Fault;
pub(crate) use room::Chosen;
