//! Offline update bundles, `warden-<channel>-<version>.wob`: one file (or a folder of the same layout) that carries the signed metadata and
//! any of the OS image, engine packs, drivers and models a release lists. It is a plain tar with exactly one way to be written:
//!
//! ```text
//! metadata/root.1.json … metadata/root.N.json
//! metadata/timestamp.json
//! metadata/release.<version>.json
//! targets/<sha256>            any of the release's targets, each once
//! ```
//!
//! Nothing in it is compressed again: images, packs and models already are. [`write()`] makes one, the same bytes from the same inputs.
//! [`open`] and [`open_folder`] read the metadata, have [`warden_trust`] judge it, and only then hand out targets, each checked part by part
//! while it is read; memory stays bounded by the metadata limits. [`inspect`] lists what a bundle says without believing or unpacking it.
//! Anything that the writer would not have written byte for byte, links, devices, odd headers, strange names, extra members, is refused.

mod fault;
mod folder;
mod header;
mod inspect;
mod member;
mod reader;
mod receive;
mod tape;
mod writer;

pub use fault::BundleError;
pub use folder::FolderSource;
pub use inspect::{Contents, Signers, inspect, inspect_folder};
pub use member::{Member, in_order_of_need};
pub use reader::{Opened, Source, open, open_folder};
pub use receive::{Received, receive};
pub use tape::TapeSource;
pub use writer::write;
