//! Whether a model fits, before a byte of it is fetched.
//!
//! In: the shape of a model (from a GGUF header or `config.json`), the bytes of its files, and the memory of cards or host. Out: a table
//! of rows with an error band each, and a verdict. Pure. What is not on the lists of known architectures, or lacks a field, is unknown
//! and named; nothing here guesses.

mod amount;
mod config_shape;
mod gguf_shape;
mod llama;
mod place;
mod shape;
mod spread;
mod verdict;
mod vllm;

pub use config_shape::shape_of_config;
pub(crate) use config_shape::{keys as config_keys, knows_class};
pub(crate) use gguf_shape::is_of_the_shape;
pub use gguf_shape::shape_of_gguf;
pub use place::{Card, Place};
pub use shape::{LayerShape, Missing, Shape, Weights};
pub use verdict::{Question, judge};
