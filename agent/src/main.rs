//! `warden-agent`: reads its configuration, wires the rooms and runs until it is told to stop.

mod admin_reset;
mod by_name;
mod cards;
mod claim_folders;
mod config;
mod console_socket;
mod disks;
mod ending;
mod front_door;
mod listeners;
mod local_updates;
mod logging;
mod memory;
mod peers;
mod place;
mod plain_door;
mod redirect;
mod routes;
mod seed;
mod sockets;
mod status;
mod updates;
mod wiring;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

/// The agent of the LM Warden appliance.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    /// Configuration file (TOML); defaults suit a dev machine.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Read and check the configuration, say what it means, and exit.
    #[arg(long)]
    check_config: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let config = match config::Config::load(cli.config.as_deref(), |name| std::env::var(name).ok()) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("warden-agent: {error}");
            return ExitCode::from(2);
        }
    };
    if cli.check_config {
        println!("{config:#?}");
        return ExitCode::SUCCESS;
    }
    memory::give_back_large_pieces();
    logging::start(config.profile);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("warden-agent: cannot start worker threads: {error}. Free some memory or raise the process limit.");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(wiring::run(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // Once: standard error is the terminal of a developer and the journal of the appliance.
            eprintln!("warden-agent: {}", problem.full_text());
            ExitCode::FAILURE
        }
    }
}
