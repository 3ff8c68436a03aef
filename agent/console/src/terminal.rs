//! The terminal behind standard input and output: keys at once and without echo, its size, and a thread that reads. On a pipe the same
//! program works without any of that.

use std::io::Read;
use std::sync::mpsc::SyncSender;

use rustix::termios::{InputModes, LocalModes, OptionalActions, tcgetattr, tcgetwinsize, tcsetattr};

use crate::screen::Size;

/// A terminal that does not say how large it is, as serial lines do not.
const USUAL: Size = Size { width: 80, height: 24 };

/// Has the terminal hand over each key as it comes. What it prints is still prepared for it (line ends).
pub fn keys_at_once() {
    let input = std::io::stdin();
    let Ok(mut modes) = tcgetattr(&input) else { return };
    modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN);
    modes.input_modes.remove(InputModes::IXON | InputModes::ICRNL);
    // A terminal that refuses still shows its screen.
    let _ = tcsetattr(&input, OptionalActions::Now, &modes);
}

/// Columns and rows now.
#[must_use]
pub fn size() -> Size {
    match tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Size { width: usize::from(size.ws_col), height: usize::from(size.ws_row) },
        _ => USUAL,
    }
}

/// Reads standard input until it ends and sends on what comes.
pub fn read_keys<T: Send + 'static>(send: SyncSender<T>, wrap: impl Fn(Vec<u8>) -> T + Send + 'static) {
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        let mut input = std::io::stdin();
        while let Ok(count) = input.read(&mut buffer) {
            if count == 0 || send.send(wrap(buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
}
