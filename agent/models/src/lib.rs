//! The registry of models: which files are known, under which name they are served, and whether they are whole.
//!
//! In: paths and names from an admin, files of unknown origin. Out: registered models, candidates, and a sentence for each file that
//! is no model. A file is judged by its header and its length only; nothing is copied, nothing in it is executed, and a hostile header
//! costs neither much memory nor a crash. This crate does not know how an engine is run.

mod candidates;
mod copy;
mod download;
pub mod fit;
pub mod gguf;
pub mod hf;
mod hub;
mod import;
mod inspect;
mod json;
pub mod name;
mod place;
mod registry;
mod safetensors;
mod split;

pub use download::{Downloader, DownloaderParts, Rules};
pub use hub::{HubParts, HubRoom};
pub use import::Importer;
pub use registry::{Models, ModelsConfig};
