//! The engine of a dev machine, as the file says that the build writes: ready, being built, or broken.
//!
//! File in, pack out. A missing file is an answer too, with the way out.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use warden_domain::engine::{EngineKind, EnginePack, PackState};

const LARGEST: u64 = 64 * 1024;
const FILE: &str = "llama.cpp.json";

#[derive(Deserialize)]
struct Told {
    engine: String,
    version: Option<String>,
    state: String,
    program: Option<PathBuf>,
    step: Option<u32>,
    of: Option<u32>,
    message: Option<String>,
}

/// What the file says: the pack for page and planner, and the program when it is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Build {
    pub(super) pack: EnginePack,
    pub(super) program: Option<PathBuf>,
}

/// Reads the file.
pub(super) fn read(folder: &Path) -> Build {
    let path = folder.join(FILE);
    match fs::metadata(&path) {
        Ok(about) if about.len() > LARGEST => return broken(None, format!("{} is too large to be what the build writes.", path.display())),
        Err(cause) if cause.kind() == ErrorKind::NotFound => {
            return broken(None, "The llama.cpp engine was not built yet. Run `make engine`.".to_owned());
        }
        _ => {}
    }
    match fs::read(&path) {
        Ok(bytes) => understand(&bytes, &path),
        Err(cause) => broken(None, format!("{} cannot be read: {cause}. Run `make engine` again.", path.display())),
    }
}

fn understand(bytes: &[u8], path: &Path) -> Build {
    let told: Told = match serde_json::from_slice(bytes) {
        Ok(told) => told,
        Err(cause) => return broken(None, format!("{} is not understood ({cause}). Run `make engine` again.", path.display())),
    };
    if told.engine != EngineKind::LlamaCpp.as_str() {
        return broken(told.version, format!("{} describes another engine. Run `make engine` again.", path.display()));
    }
    match (told.state.as_str(), told.program) {
        ("ready", Some(program)) if program.is_file() => Build { pack: pack(told.version, PackState::Ready), program: Some(program) },
        ("ready", _) => broken(told.version, "The engine's program is gone. Run `make engine` again.".to_owned()),
        ("building", _) => {
            let message = told.message.unwrap_or_else(|| "being built".to_owned());
            Build { pack: pack(told.version, PackState::Building { step: told.step, of: told.of, message }), program: None }
        }
        _ => {
            let why = told.message.unwrap_or_else(|| "the build failed".to_owned());
            broken(told.version, format!("The llama.cpp engine could not be built: {why}. Run `make engine` to see more."))
        }
    }
}

fn broken(version: Option<String>, message: String) -> Build {
    Build { pack: pack(version, PackState::Broken { message }), program: None }
}

const fn pack(version: Option<String>, state: PackState) -> EnginePack {
    EnginePack { engine: EngineKind::LlamaCpp, version, digest: None, state }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> PackState {
        understand(text.as_bytes(), Path::new("/e/llama.cpp.json")).pack.state
    }

    #[test]
    fn a_build_under_way_is_told_with_its_progress() {
        let state = of(r#"{"engine":"llama.cpp","version":"b1","state":"building","step":123,"of":208,"message":"compiling a.cpp"}"#);
        assert_eq!(state, PackState::Building { step: Some(123), of: Some(208), message: "compiling a.cpp".to_owned() });
    }

    #[test]
    fn every_other_file_is_broken_with_a_way_out() {
        for text in ["", "{", "[]", r#"{"engine":"other","state":"ready"}"#, r#"{"engine":"llama.cpp","state":"ready","program":"/nonexistent"}"#] {
            assert!(matches!(of(text), PackState::Broken { message } if message.contains("make engine")), "{text}");
        }
        assert!(
            matches!(of(r#"{"engine":"llama.cpp","state":"broken","message":"no compiler"}"#), PackState::Broken { message } if message.contains("no compiler"))
        );
        assert!(matches!(read(Path::new("/nonexistent")).pack.state, PackState::Broken { .. }));
    }
}
