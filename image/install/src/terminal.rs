//! The screens: tty1 and the serial line show the same, and a line typed on either is taken.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{ControlFlags, InputFlags, LocalFlags, OutputFlags, SetArg, tcgetattr, tcsetattr};

/// Open screens.
#[derive(Debug)]
pub struct Screens {
    open: Vec<Screen>,
}

#[derive(Debug)]
struct Screen {
    file: File,
    typed: Vec<u8>,
    deaf: bool,
}

impl Screens {
    /// Opens tty1 and, where there is one, the first serial line.
    #[must_use]
    pub fn open() -> Self {
        let real = |tty: &str| std::fs::read_to_string(format!("/sys/class/tty/{tty}/type")).map_or(true, |kind| kind.trim() != "0");
        let open = ["tty1", "ttyS0"].into_iter().filter(|tty| real(tty)).filter_map(|tty| screen(&Path::new("/dev").join(tty)).ok()).collect();
        Self { open }
    }

    /// Shows a line on every screen.
    pub fn say(&mut self, line: &str) {
        self.show(&format!("{line}\n"));
    }

    fn show(&mut self, text: &str) {
        let text = printable(text);
        for screen in &mut self.open {
            // A screen that is gone must not stop an installation.
            let _ = screen.file.write_all(text.as_bytes()).and_then(|()| screen.file.flush());
        }
    }

    /// Shows a question and waits for a line; nothing when no screen can be typed on.
    pub fn ask(&mut self, question: &str) -> Option<String> {
        self.show(question);
        for screen in &mut self.open {
            screen.typed.clear();
        }
        loop {
            let waiting: Vec<usize> = (0..self.open.len()).filter(|n| !self.open[*n].deaf).collect();
            if waiting.is_empty() {
                return None;
            }
            let mut fds: Vec<PollFd<'_>> = waiting.iter().map(|n| PollFd::new(self.open[*n].file.as_fd(), PollFlags::POLLIN)).collect();
            let _ = poll(&mut fds, PollTimeout::NONE);
            let ready: Vec<usize> = fds.iter().zip(&waiting).filter(|(fd, _)| fd.any().unwrap_or(false)).map(|(_, n)| *n).collect();
            for n in ready {
                if let Some(line) = self.open[n].read() {
                    return Some(line);
                }
            }
        }
    }
}

/// Text without anything that steers a terminal: disks, sticks and files name themselves, and no name may paint over the screen or turn
/// its letters around.
fn printable(text: &str) -> String {
    let steers = |letter: char| {
        (letter.is_control() && letter != '\n')
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.chars().filter(|letter| !steers(*letter)).collect()
}

impl Screen {
    fn read(&mut self) -> Option<String> {
        let mut bytes = [0; 256];
        match self.file.read(&mut bytes) {
            Ok(0) | Err(_) => self.deaf = true,
            Ok(count) => self.typed.extend_from_slice(&bytes[..count]),
        }
        let end = self.typed.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
        let line = String::from_utf8_lossy(&self.typed[..end]).chars().filter(|letter| !letter.is_control()).collect::<String>();
        self.typed.clear();
        Some(line.trim().to_owned())
    }
}

fn screen(path: &Path) -> std::io::Result<Screen> {
    // Opening a serial line may wait for a carrier that never comes.
    let flags = OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags.bits()).open(path)?;
    let mut settings = tcgetattr(&file)?;
    settings.control_flags |= ControlFlags::CLOCAL | ControlFlags::CREAD;
    settings.input_flags |= InputFlags::ICRNL;
    settings.output_flags |= OutputFlags::OPOST | OutputFlags::ONLCR;
    settings.local_flags |= LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ECHOE;
    settings.local_flags -= LocalFlags::ISIG;
    tcsetattr(&file, SetArg::TCSANOW, &settings)?;
    fcntl(&file, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(Screen { file, typed: Vec::new(), deaf: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_disk_or_file_steers_the_screen() {
        let said = printable("1  Disk\u{1b}[2J\u{1b}[1;1HInstalled\r\u{202e}KSID\u{7}\u{9b}2K\nnext");
        assert_eq!(said, "1  Disk[2J[1;1HInstalledKSID2K\nnext");
    }
}
