//! Issues: the checks, the memory that turns what they see into issues with a beginning and an end, and the task that runs them.

pub(crate) mod checks;
pub(crate) mod evaluator;
pub(crate) mod memory;
