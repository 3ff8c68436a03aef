//! QEMU's control socket: one JSON command at a time, events skipped.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::VmError;

/// An open, negotiated control connection.
#[derive(Debug)]
pub struct Qmp {
    write: UnixStream,
    read: BufReader<UnixStream>,
}

impl Qmp {
    pub(crate) fn connect(path: &Path) -> Result<Self, VmError> {
        let io = |source| VmError::Io { what: "cannot speak to QEMU", path: path.into(), source };
        let write = UnixStream::connect(path).map_err(io)?;
        write.set_read_timeout(Some(Duration::from_secs(60))).map_err(io)?;
        let read = BufReader::new(write.try_clone().map_err(io)?);
        let mut qmp = Self { write, read };
        qmp.line("greeting")?;
        qmp.call("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Runs one command and gives its `return` value.
    ///
    /// # Errors
    /// [`VmError::Qmp`] with QEMU's own words, also when the connection is gone.
    pub fn call(&mut self, command: &str, arguments: Value) -> Result<Value, VmError> {
        let mut text = json!({"execute": command, "arguments": arguments}).to_string();
        text.push('\n');
        self.write.write_all(text.as_bytes()).map_err(|e| said(command, &e.to_string()))?;
        loop {
            let mut answer = self.line(command)?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(said(command, &error.to_string()));
            }
        }
    }

    fn line(&mut self, command: &str) -> Result<Value, VmError> {
        let mut line = String::new();
        match self.read.read_line(&mut line) {
            Ok(0) => Err(said(command, "QEMU closed the connection")),
            Ok(_) => serde_json::from_str(&line).map_err(|e| said(command, &e.to_string())),
            Err(e) => Err(said(command, &e.to_string())),
        }
    }
}

fn said(command: &str, said: &str) -> VmError {
    VmError::Qmp { command: command.into(), said: said.into() }
}
