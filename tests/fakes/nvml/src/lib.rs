//! A simulated `libnvidia-ml.so.1` for development and tests: the C functions that the GPU reader calls, answered from a scenario.
//!
//! In: `scenario.toml` in the folder that the library was loaded from. Out: NVML's own interface. It calls itself simulated in the
//! version that it tells, so nobody takes its cards for real ones. Tests use the same crate to lay out a folder ([`lay`]) and to know
//! what the figures must be ([`Scenario`]). Never part of an image.
#![allow(unsafe_code, reason = "this is a C library; struct layouts come from the bindings that the reader uses")]

mod calls;
mod scenario;

use std::path::{Path, PathBuf};

pub use scenario::{Card, Holder, Scenario};

/// The name under which drivers install the library.
pub const FILE: &str = "libnvidia-ml.so.1";

/// Puts a copy of the built library and its scenario into a folder and returns the path to load.
///
/// # Errors
/// A sentence when the library is not built, or a file cannot be written.
pub fn lay(folder: &Path, built: &Path, scenario: &str) -> Result<PathBuf, String> {
    let library = folder.join(FILE);
    std::fs::copy(built, &library).map_err(|e| format!("the simulated library {} cannot be used: {e}", built.display()))?;
    std::fs::write(folder.join(scenario::FILE), scenario).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(library)
}

/// The text of a scenario that comes with this crate.
#[must_use]
pub fn named(name: &str) -> Option<&'static str> {
    match name {
        "four-alike" => Some(include_str!("../scenarios/four-alike.toml")),
        "narrow-link" => Some(include_str!("../scenarios/narrow-link.toml")),
        "hang" => Some(include_str!("../scenarios/hang.toml")),
        "refusing" => Some(include_str!("../scenarios/refusing.toml")),
        "odd" => Some(include_str!("../scenarios/odd.toml")),
        _ => None,
    }
}

/// The built library beside a test's own program, where Cargo puts it when a test depends on this crate.
///
/// # Errors
/// A sentence when it is not there.
pub fn beside_this_test() -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|e| e.to_string())?;
    let built = here.with_file_name("libwarden_fake_nvml.so");
    if built.is_file() { Ok(built) } else { Err(format!("{} is not there; run the tests through cargo", built.display())) }
}
