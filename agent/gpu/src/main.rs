//! `warden-gpu`: reads GPU cards and tells them on a socket. Its own process, so that a driver that hangs takes nobody along.

use std::{io::Read, path::PathBuf, process::ExitCode, thread};

use clap::Parser;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use warden_gpu::reader;

/// Reads GPU cards through NVML.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    /// The Unix socket to serve on.
    #[arg(long)]
    socket: PathBuf,
    /// Another NVML library than the installed one, for development.
    #[arg(long, default_value = reader::LIBRARY)]
    library: PathBuf,
    /// End when standard input ends: whoever started this is gone then.
    #[arg(long)]
    end_with_input: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.end_with_input {
        thread::spawn(end_with_input);
    }
    match reader::run(&cli.library, &cli.socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            eprintln!("warden-gpu: it cannot serve on {}: {cause}. Is its folder there, and no other reader on it?", cli.socket.display());
            ExitCode::FAILURE
        }
    }
}

/// Ends the process without the library's own clean-up, which would wait for a call that hangs.
fn end_with_input() {
    let mut sink = [0; 64];
    while matches!(std::io::stdin().read(&mut sink), Ok(read) if read > 0) {}
    let _never_refused = kill(Pid::this(), Signal::SIGKILL);
}
