//! SQLite behind one writer thread: migrations, typed queries, usage ledger.
//!
//! In: closures that read, or that write inside one transaction. Out: rows as plain values, `StoreError` that turns into a
//! `Problem`. One file per resource holds its queries, so that no other crate contains SQL. This crate never speaks HTTP, never
//! starts an engine and is never on the path of an inference request: the ledger takes charges through a bounded channel.

pub mod accounts;
pub mod alerts;
pub mod audit;
pub mod desired;
pub mod disks;
mod error;
pub mod issues;
pub mod keys;
mod ledger;
pub mod loads;
pub mod models;
pub mod moment;
pub mod recovery;
mod reserve;
mod schema;
pub mod sessions;
pub mod settings;
pub mod slots;
mod store;
pub mod usage;

pub use error::StoreError;
pub use ledger::StoreLedger;
/// The SQL binding, so that callers of `Store::read` and `Store::write` need no dependency of their own.
pub use rusqlite;
pub use schema::DATA_SCHEMA;
pub use store::Store;
