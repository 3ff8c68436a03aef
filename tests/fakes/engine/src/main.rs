//! The scripted engine's program; see the library for what it is.
//!
//! In: llama-server's command line. Out: a socket that answers as the script says. It ends by SIGTERM with status 0, as the genuine one does.

mod chunks;
mod figures;
mod notes;
mod perform;
mod serve;
mod start;
mod wire;

use std::process::ExitCode;

use tokio::{
    net::{TcpListener, UnixListener},
    signal::unix::{SignalKind, signal},
};

use crate::{serve::Engine, start::Wanted};

fn main() -> ExitCode {
    match start::read(std::env::args().skip(1)).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            start::log('E', &format!("srv  llama_server: {sentence}"));
            ExitCode::FAILURE
        }
    }
}

fn run(wanted: Wanted) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let mut term = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
        let engine = Engine::new(&wanted)?;
        tokio::select! {
            _ = term.recv() => {
                start::log('I', "srv  llama_server: cleaning up before exit...");
                Ok(())
            }
            ended = listen(&wanted, engine) => ended,
        }
    })
}

async fn listen(wanted: &Wanted, engine: std::sync::Arc<Engine>) -> Result<(), String> {
    let taken = |e: std::io::Error| format!("couldn't bind HTTP server socket, hostname: {}: {e}", wanted.host);
    if wanted.host.ends_with(".sock") {
        let listener = UnixListener::bind(&wanted.host).map_err(taken)?;
        tokio::spawn(start::load(wanted.clone(), std::sync::Arc::clone(&engine)));
        loop {
            let (stream, _) = listener.accept().await.map_err(|e| e.to_string())?;
            tokio::spawn(serve::connection(stream, std::sync::Arc::clone(&engine)));
        }
    }
    let listener = TcpListener::bind((wanted.host.as_str(), wanted.port)).await.map_err(taken)?;
    tokio::spawn(start::load(wanted.clone(), std::sync::Arc::clone(&engine)));
    loop {
        let (stream, _) = listener.accept().await.map_err(|e| e.to_string())?;
        let _slower_without = stream.set_nodelay(true);
        tokio::spawn(serve::connection(stream, std::sync::Arc::clone(&engine)));
    }
}
