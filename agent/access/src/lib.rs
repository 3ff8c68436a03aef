//! Accounts, claim code, sessions, CSRF proof and inference keys.
//!
//! In: names, passwords, cookies, key secrets. Out: who it is, or a `Problem`. `Access` implements the ports `Accounts`, `Keys`,
//! `KeyDirectory`, `Recovery` and `Audit`; `http` is the gate in front of `/api` and `/ui`. Secrets are kept as hashes only; the exceptions are the
//! claim code and the reset code, which must be shown to whoever stands at the box and die with their use. Never renders a page, never touches an engine.

mod claim;
pub mod http;
mod keyring;
mod password;
mod people;
mod recovery;
mod room;
mod seed;
mod slowdown;
mod token;

pub use room::Access;
