//! The local screen, one process per terminal: tty1 and the serial line. It shows where the box is to be reached and how it is, as the
//! agent tells it over a local socket, and stays useful when the agent is silent. It writes to its own terminal only, and only when
//! something has changed.

mod agent;
mod screen;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use screen::{Paper, View};

const SOCKET: &str = "/run/warden-agent/console.sock";
const PAUSE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [flag, terminal] = words.as_slice() else { return usage() };
    if flag != "--terminal" {
        return usage();
    }
    match show(Paper::of_terminal(terminal)) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("console: cannot write to {terminal}: {error}; is it connected?");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: warden-console --terminal NAME (writes to standard output; NAME, such as tty1 or ttyS0, tells how)");
    ExitCode::from(2)
}

fn show(paper: Paper) -> std::io::Result<std::convert::Infallible> {
    let begun = Instant::now();
    let version = std::fs::read_to_string("/usr/lib/warden/version").unwrap_or_default();
    let mut shown = String::new();
    loop {
        let recovery = ["recovery-state", "recovery-boot"].iter().find_map(|name| std::fs::read_to_string(format!("/run/warden-boot/{name}")).ok());
        let view = View { version: &version, status: agent::status(Path::new(SOCKET)), recovery, uptime: begun.elapsed() };
        let text = paper.draw(&view.lines());
        if text != shown {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
            out.flush()?;
            shown = text;
        }
        std::thread::sleep(PAUSE);
    }
}
