//! The adapter of llama.cpp's own server: arguments, environment, the phases of its start, the causes of its failures, its figures.
//!
//! Pure: plans, log lines and pages in, argument lists, phase names, reasons and figures out.

pub(crate) mod arguments;
pub(crate) mod causes;
pub(crate) mod figures;
pub(crate) mod line;
pub mod memory;
pub(crate) mod phases;
