//! Runs one outside program to its end. Its output is shown only when it fails.

use std::process::{Command, Stdio};

use crate::fault::{Done, Fault};

/// Runs `command`; gives its standard output.
pub(crate) fn run(tool: &str, command: &mut Command) -> Done<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| Fault::Start {
        tool: tool.into(),
        source,
        way_out: "install it, or run `warden-image builder` first",
    })?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(out);
    }
    let err = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = out.lines().chain(err.lines()).collect();
    let said = lines[lines.len().saturating_sub(20)..].join("\n");
    Err(Fault::Tool { tool: tool.into(), status: output.status.to_string(), said })
}

/// As [`run`], but the output is kept byte for byte (for filters such as `xz -dc`).
pub(crate) fn bytes(tool: &str, command: &mut Command) -> Done<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| Fault::Start {
        tool: tool.into(),
        source,
        way_out: "run `warden-image builder` first",
    })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Fault::Tool { tool: tool.into(), status: output.status.to_string(), said: String::from_utf8_lossy(&output.stderr).into_owned() })
}
