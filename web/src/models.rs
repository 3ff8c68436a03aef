//! Models: the list, one model, registering, adding one by name, and what can be done with one.

pub(crate) mod act;
mod asked;
pub(crate) mod choice;
pub(crate) mod detail;
pub(crate) mod downloads;
pub(crate) mod hub;
pub(crate) mod hub_settings;
pub(crate) mod list;
pub(crate) mod new;
mod routing;
pub(crate) mod settings;
mod sums;
