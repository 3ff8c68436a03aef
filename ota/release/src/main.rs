//! `warden-release`; see `--help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match warden_release::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("warden-release: {fault}");
            ExitCode::FAILURE
        }
    }
}
