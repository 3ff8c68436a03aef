//! The reader: one thread inside NVML, one per listener, and a board between them.
//!
//! In: the path of the library. Out: frames on a socket. The thread inside NVML never holds the board's lock during a call.

mod board;
mod cards;
mod margin;
mod nvml;
mod serve;

use std::{io, path::Path, sync::Arc, thread};

pub use board::Board;
pub use serve::listen;

/// The name under which drivers install the library; the loader finds it.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// Reads and serves until the process is ended.
///
/// # Errors
/// Why the socket cannot be opened, or the threads cannot be made.
pub fn run(library: &Path, socket: &Path) -> io::Result<()> {
    let listener = listen(socket)?;
    let board = Arc::new(Board::default());
    let inside = {
        let (board, library) = (Arc::clone(&board), library.to_owned());
        thread::Builder::new().name("nvml".to_owned()).spawn(move || nvml::read_for_ever(&library, &board))?
    };
    thread::Builder::new().name("listen".to_owned()).spawn(move || serve::serve(&listener, &board))?;
    // It only ends by a fault of its own; whoever started this process starts it again.
    inside.join().map_err(|_| io::Error::other("the thread inside NVML broke"))
}
