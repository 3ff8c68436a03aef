//! Prepares what the pages are made of: the message catalogue and the embedded assets.
//!
//! In: `messages/*.toml`, own files in `assets/`, and the third-party files that `make assets` put into `target/web-assets`.
//! Out: two Rust files in `OUT_DIR`. It stops the build with a sentence when a file is missing or has other bytes than the hash in
//! the tree, and when a language lacks a message. It never uses the network.

#[path = "build/assets.rs"]
mod assets;
#[path = "build/messages.rs"]
mod messages;

use std::{env, path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    match prepare() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            println!("cargo::error={sentence}");
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> Result<(), String> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(|_| "CARGO_MANIFEST_DIR is not set; run this through cargo")?);
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|_| "OUT_DIR is not set; run this through cargo")?);
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=templates");
    write(&out.join("messages.rs"), &messages::generate(&here.join("messages"))?)?;
    let fetched = env::var_os("WARDEN_WEB_ASSETS").map_or_else(|| here.join("../target/web-assets"), PathBuf::from);
    println!("cargo::rerun-if-env-changed=WARDEN_WEB_ASSETS");
    write(&out.join("assets.rs"), &assets::generate(&here.join("assets"), &fetched)?)
}

fn write(path: &std::path::Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|cause| format!("{} could not be written: {cause}", path.display()))
}
