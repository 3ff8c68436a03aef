//! The release engineer's tool: makes keys, signs a release, publishes a channel that any static server can serve, cuts an offline bundle,
//! verifies and inspects both. The same inputs (keys, recipe, files, `--at`) give the same bytes.
//!
//! It writes only what `warden_trust` would accept: each command that signs or publishes has the result judged by the rules a box uses before
//! it is put in place. Key files are made once and never overwritten. `docs/release.md` is the page for people.

mod args;
mod channel;
mod cli;
mod development;
mod fault;
mod files;
mod judge;
mod keyfile;
mod keys;
mod recipe;
mod show;
mod sign;

pub use cli::{run, run_with};
pub use development::{development_keys, root_of};
pub use fault::Fault;
