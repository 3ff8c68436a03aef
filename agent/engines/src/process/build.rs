//! The engines of a dev machine, each as the file says that its build writes: ready, being built, or broken.
//!
//! File in, pack out. A missing file is an answer too, with the way out. llama.cpp belongs on every machine; vLLM is there or not.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use warden_domain::engine::{EngineKind, EnginePack, PackState};

const LARGEST: u64 = 64 * 1024;

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

/// The make target that brings an engine.
const fn target(engine: EngineKind) -> &'static str {
    match engine {
        EngineKind::LlamaCpp => "make engine",
        EngineKind::Vllm => "make vllm",
    }
}

fn file(folder: &Path, engine: EngineKind) -> PathBuf {
    folder.join(format!("{}.json", engine.as_str()))
}

/// All engines of this machine.
pub(super) fn all(folder: &Path) -> Vec<Build> {
    let mut builds = vec![read(folder, EngineKind::LlamaCpp)];
    if file(folder, EngineKind::Vllm).exists() {
        builds.push(read(folder, EngineKind::Vllm));
    }
    builds
}

/// Reads the file of one.
pub(super) fn read(folder: &Path, engine: EngineKind) -> Build {
    let path = file(folder, engine);
    let make = target(engine);
    match fs::metadata(&path) {
        Ok(about) if about.len() > LARGEST => return broken(engine, None, format!("{} is too large to be what the build writes.", path.display())),
        Err(cause) if cause.kind() == ErrorKind::NotFound => {
            return broken(engine, None, format!("The {} engine was not built yet. Run `{make}`.", engine.as_str()));
        }
        _ => {}
    }
    match fs::read(&path) {
        Ok(bytes) => understand(engine, &bytes, &path),
        Err(cause) => broken(engine, None, format!("{} cannot be read: {cause}. Run `{make}` again.", path.display())),
    }
}

fn understand(engine: EngineKind, bytes: &[u8], path: &Path) -> Build {
    let make = target(engine);
    let broken = |version, message| broken(engine, version, message);
    let pack = |version, state| pack(engine, version, state);
    let told: Told = match serde_json::from_slice(bytes) {
        Ok(told) => told,
        Err(cause) => return broken(None, format!("{} is not understood ({cause}). Run `{make}` again.", path.display())),
    };
    if told.engine != engine.as_str() {
        return broken(told.version, format!("{} describes another engine. Run `{make}` again.", path.display()));
    }
    match (told.state.as_str(), told.program) {
        ("ready", Some(program)) if program.is_file() => Build { pack: pack(told.version, PackState::Ready), program: Some(program) },
        ("ready", _) => broken(told.version, format!("The engine's program is gone. Run `{make}` again.")),
        ("building", _) => {
            let message = told.message.unwrap_or_else(|| "being built".to_owned());
            Build { pack: pack(told.version, PackState::Building { step: told.step, of: told.of, message }), program: None }
        }
        _ => {
            let why = told.message.unwrap_or_else(|| "the build failed".to_owned());
            broken(told.version, format!("The {} engine could not be built: {why}. Run `{make}` to see more.", engine.as_str()))
        }
    }
}

fn broken(engine: EngineKind, version: Option<String>, message: String) -> Build {
    Build { pack: pack(engine, version, PackState::Broken { message }), program: None }
}

const fn pack(engine: EngineKind, version: Option<String>, state: PackState) -> EnginePack {
    EnginePack { engine, version, digest: None, state }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> PackState {
        understand(EngineKind::LlamaCpp, text.as_bytes(), Path::new("/e/llama.cpp.json")).pack.state
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
        assert!(matches!(read(Path::new("/nonexistent"), EngineKind::LlamaCpp).pack.state, PackState::Broken { .. }));
    }

    #[test]
    fn vllm_is_an_engine_of_this_machine_only_where_it_was_installed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(all(dir.path()).iter().map(|build| build.pack.engine).collect::<Vec<_>>(), [EngineKind::LlamaCpp]);
        let absent = read(dir.path(), EngineKind::Vllm);
        assert!(matches!(absent.pack.state, PackState::Broken { message } if message.contains("make vllm")));
        let program = dir.path().join("vllm");
        fs::write(&program, b"").unwrap();
        let text = serde_json::json!({"engine": "vllm", "version": "0.32.0", "state": "ready", "program": program});
        fs::write(dir.path().join("vllm.json"), text.to_string()).unwrap();
        let found = all(dir.path()).pop().unwrap();
        assert_eq!((found.pack.engine, found.pack.state, found.program), (EngineKind::Vllm, PackState::Ready, Some(program)));
    }
}
