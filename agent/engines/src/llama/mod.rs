//! The adapter of llama.cpp's own server: arguments, environment, the phases of its start, and the causes of its failures.
//!
//! Pure: plans and log lines in, argument lists, phase names and reasons out.

pub mod arguments;
pub mod causes;
pub mod line;
pub mod phases;
