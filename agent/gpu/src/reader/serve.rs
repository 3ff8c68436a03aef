//! The socket: each listener gets a line at once, then one per round and at least one per half second. Listeners cannot say anything,
//! and one that does not read is dropped.

use std::{
    io::{self, ErrorKind, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::board::Board;

/// More listeners than this have no reason to be there.
const MOST: usize = 8;
/// Without news a line is sent again this often, so that a silence means something.
const AT_LEAST_EVERY: Duration = Duration::from_millis(500);
/// A listener that does not take a line for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens the socket for its owner and group. One that a dead reader left is replaced; one that somebody answers on is not.
///
/// # Errors
/// What the system says; `AddrInUse` when another reader is there.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(cause) if cause.kind() == ErrorKind::AddrInUse && UnixStream::connect(path).is_err() => {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        other => other,
    }?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// Serves listeners; never returns.
pub(super) fn serve(listener: &UnixListener, board: &Arc<Board>) {
    let present = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors: better in a moment.
            thread::sleep(AT_LEAST_EVERY);
            continue;
        };
        if present.fetch_add(1, Ordering::Relaxed) >= MOST {
            present.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (board, there) = (Arc::clone(board), Arc::clone(&present));
        let begun = thread::Builder::new().name("listener".to_owned()).spawn(move || {
            // Its end is how a listener leaves.
            let _left = tell(stream, &board);
            there.fetch_sub(1, Ordering::Relaxed);
        });
        if begun.is_err() {
            present.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn tell(mut stream: UnixStream, board: &Board) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    loop {
        let (frame, number) = board.frame();
        stream.write_all(&frame.line().map_err(io::Error::other)?)?;
        board.wait(number, AT_LEAST_EVERY);
    }
}
