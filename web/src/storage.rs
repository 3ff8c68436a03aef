//! `/ui/storage`: disks, model storage, importing from a stick.

pub(crate) mod adopt;
pub(crate) mod import;
pub(crate) mod list;
