//! `warden-bench`: what the gateway costs, measured beside other gateways with one engine that does nothing and one load generator.
//!
//! `engine` and `proxy` are servers that a measurement starts; `gateway` measures, prints a table and writes the report.

mod bodies;
mod engine;
mod load;
mod peers;
mod process;
mod proxy;
mod report;
mod run;
mod stats;
mod wire;

use std::{net::SocketAddr, process::ExitCode};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The engine that does nothing. Takes llama-server's arguments, of which only the address and the name count.
    Engine {
        /// All of them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The bare proxy: bytes in, bytes out, no key, no look into a body.
    Proxy {
        /// Where it listens.
        #[arg(long)]
        listen: SocketAddr,
        /// The engine behind it.
        #[arg(long)]
        engine: SocketAddr,
    },
    /// Measures all arms.
    Gateway(run::Wishes),
}

fn main() -> ExitCode {
    let done = match Cli::parse().what {
        What::Engine { arguments } => engine::run(&arguments),
        What::Proxy { listen, engine } => proxy::run(listen, engine),
        What::Gateway(wishes) => run::run(&wishes),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("warden-bench: {why}");
            ExitCode::FAILURE
        }
    }
}
