//! Models: the list, one model, registering, and what can be done with one.

pub(crate) mod act;
pub(crate) mod detail;
pub(crate) mod list;
pub(crate) mod new;
mod routing;
pub(crate) mod settings;
