//! Thin readers of the system: one look, one value, no judgement. What cannot be read is an error with a sentence.

pub(crate) mod boot;
pub(crate) mod disk;
pub(crate) mod routes;
pub(crate) mod units;
