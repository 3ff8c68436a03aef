//! Root shell on the guest's second serial port. It exists in the test flavour only; production has neither shell nor getty.
//!
//! A command goes out with a marker behind it; what comes back before the marker is the command's output, the number in the
//! marker its exit status.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::VmError;
use crate::serial::tail;

/// What a command in the guest answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The exit status.
    pub status: i32,
    /// Standard output and error together, without carriage returns.
    pub output: String,
}

/// An open shell.
#[derive(Debug)]
pub struct Shell {
    stream: UnixStream,
    heard: String,
    count: u32,
}

impl Shell {
    /// Waits until the shell answers and switches its echo and prompt off.
    pub(crate) fn open(stream: UnixStream, timeout: Duration) -> Result<Self, VmError> {
        stream.set_read_timeout(Some(Duration::from_millis(200))).map_err(VmError::io("cannot set up the guest's shell", "ttyS1"))?;
        let mut shell = Self { stream, heard: String::new(), count: 0 };
        let end = Instant::now() + timeout;
        while Instant::now() < end {
            // The answer is spelled in two halves, so that the terminal's echo of the question is not taken for it.
            shell.send("stty -echo; PS1=; PS2=; echo shell-is''-up\n")?;
            if shell.read_until("shell-is-up", Duration::from_secs(2)).is_ok() {
                std::thread::sleep(Duration::from_millis(300));
                shell.heard.clear();
                return Ok(shell);
            }
        }
        Err(VmError::TimedOut { what: "the shell on ttyS1 (test flavour only)".into(), seconds: timeout.as_secs(), tail: tail(&shell.heard) })
    }

    /// Runs a line of shell in the guest as root.
    ///
    /// # Errors
    /// [`VmError::TimedOut`] when it does not end in time.
    pub fn run(&mut self, command: &str, timeout: Duration) -> Result<Reply, VmError> {
        self.count += 1;
        let marker = format!("done-{}-", self.count);
        self.heard.clear();
        self.send(&format!("{{ {command}\n}} 2>&1 </dev/null; echo done''-{}-$?.\n", self.count))?;
        let before = self.read_until(&marker, timeout)?;
        let status = self.read_until(".", Duration::from_secs(10))?;
        Ok(Reply { status: status.trim().parse().unwrap_or(-1), output: before.replace('\r', "") })
    }

    fn send(&mut self, text: &str) -> Result<(), VmError> {
        self.stream.write_all(text.as_bytes()).map_err(VmError::io("cannot write to the guest's shell", "ttyS1"))
    }

    /// Reads until `marker`, gives what came before it and forgets both.
    fn read_until(&mut self, marker: &str, timeout: Duration) -> Result<String, VmError> {
        let end = Instant::now() + timeout;
        let mut buffer = [0u8; 4096];
        loop {
            if let Some(at) = self.heard.find(marker) {
                let before = self.heard[..at].to_owned();
                self.heard.drain(..at + marker.len());
                return Ok(before);
            }
            if Instant::now() >= end {
                return Err(VmError::TimedOut { what: "an answer of the shell".into(), seconds: timeout.as_secs(), tail: tail(&self.heard) });
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(VmError::Ended { subject: "the guest's shell".into(), tail: tail(&self.heard) }),
                Ok(n) => self.heard.push_str(&String::from_utf8_lossy(&buffer[..n])),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => return Err(VmError::io("cannot read from the guest's shell", "ttyS1")(e)),
            }
        }
    }
}
