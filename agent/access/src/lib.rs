//! Accounts, claim code, sessions, CSRF proof and inference keys.
//!
//! In: names, passwords, cookies, key secrets. Out: who it is, or a `Problem`. `Access` implements the ports `Accounts`, `Keys` and
//! `KeyDirectory`; `http` is the gate in front of `/api` and `/ui`. Secrets are kept as hashes only; the one exception is the claim
//! code, which must be shown to whoever stands at the box and dies with the claim. Never renders a page, never touches an engine.

mod claim;
pub mod http;
mod keyring;
mod password;
mod people;
mod room;
mod seed;
mod slowdown;
mod token;

pub use room::Access;
