//! Reading the header of a GGUF file, versions 2 and 3.
//!
//! In: a stream of bytes and how long the file is. Out: the few facts the registry keeps and how many bytes a whole file must have, or
//! a fault. The header is untrusted: each count and length is checked against a cap and against what is left of the file before
//! anything is allocated, so the memory used stays under about a megabyte whatever the file says. Never reads tensor data.

mod header;
mod keys;
mod source;
mod types;
mod value;

pub use header::{Header, read_header};
pub use keys::{Keys, Reach, TensorSums, read_keys};

/// Why bytes are no usable model file. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The first bytes are not those of the format.
    #[error("it is not a GGUF file (it does not begin with the letters GGUF)")]
    NotGguf,
    /// Version 1, which no present engine reads.
    #[error("it is a GGUF file of version 1, which is too old to be loaded")]
    OldVersion,
    /// Written on a big-endian machine.
    #[error("it is a GGUF file for big-endian machines, which this one is not")]
    OtherByteOrder,
    /// A version this reader does not know.
    #[error("it is a GGUF file of version {0}, and only versions 2 and 3 are known")]
    NewVersion(u32),
    /// The file ends inside its header.
    #[error("it is cut: it holds {holds} bytes and ends inside its own header")]
    CutInHeader {
        /// Size of the file.
        holds: u64,
    },
    /// The file ends before its last tensor does.
    #[error("it is cut: it holds {holds} of {needs} bytes")]
    CutInData {
        /// Size of the file.
        holds: u64,
        /// Size the header asks for.
        needs: u64,
    },
    /// The system reports an error while reading.
    #[error("the disk could not read it")]
    Unreadable,
    /// The header breaks a rule of the format, or one of the caps on what is read.
    #[error("its header is damaged: {0}")]
    Damaged(&'static str),
}
