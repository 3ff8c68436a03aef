//! The launch spec that the launcher reads inside the engine's sandbox.
//!
//! Plan in, JSON file out, replaced as a whole. Holds no secret. It lies on a memory file system, so it is renamed into place but needs
//! no flush.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use serde::{Deserialize, Serialize};
use warden_domain::{
    engine::{EngineKind, ReplicaPlan},
    ids::{GenerationId, ReplicaId},
};

use crate::adapter::{Command, program};

/// The folder of programs inside a pack.
const PROGRAMS: &str = "/engine/bin/";
/// The launcher takes no larger spec.
const LARGEST: u64 = 64 * 1024;

/// The document, as the launcher knows it.
#[derive(Serialize)]
pub(super) struct Spec {
    format: u32,
    replica: String,
    generation: String,
    program: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

impl Spec {
    pub(super) fn new(plan: &ReplicaPlan, command: Command) -> Self {
        Self {
            format: 1,
            replica: plan.replica.as_str().to_owned(),
            generation: plan.generation.as_str().to_owned(),
            program: format!("{PROGRAMS}{}", program(plan.engine)),
            args: command.arguments,
            env: command.environment,
        }
    }

    /// Writes `<folder>/<replica>.json`, readable for the sandbox's user.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(format!("{}.json", self.replica));
        let fresh = folder.join(format!(".{}.new", self.replica));
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        let _ = fs::remove_file(&fresh);
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&fresh)?;
            file.write_all(&text)?;
            fs::rename(&fresh, &path)
        })();
        if written.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        written
    }
}

/// The engine of a replica's last launch; `None` when there is no spec of it.
pub(super) fn engine(folder: &Path, replica: &ReplicaId) -> Option<EngineKind> {
    let said = said(folder, replica)?;
    let name = said.program.strip_prefix(PROGRAMS)?;
    [EngineKind::LlamaCpp, EngineKind::Vllm].into_iter().find(|engine| program(*engine) == name)
}

/// The attempt of a replica's last launch; `None` when there is no spec of it.
pub(super) fn generation(folder: &Path, replica: &ReplicaId) -> Option<GenerationId> {
    said(folder, replica).map(|said| GenerationId::from_stored(said.generation))
}

#[derive(Deserialize)]
struct Said {
    program: String,
    generation: String,
}

fn said(folder: &Path, replica: &ReplicaId) -> Option<Said> {
    let path = folder.join(format!("{replica}.json"));
    let about = fs::symlink_metadata(&path).ok()?;
    if !about.is_file() || about.len() > LARGEST {
        return None;
    }
    serde_json::from_slice(&fs::read(&path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use warden_domain::units::Tokens;

    use super::*;

    #[test]
    fn the_spec_is_the_document_the_launcher_knows() {
        let dir = tempfile::tempdir().unwrap();
        let plan = ReplicaPlan {
            replica: ReplicaId::new("tiny-0").unwrap(),
            generation: GenerationId::from_stored("gen_1"),
            engine: EngineKind::LlamaCpp,
            served_name: "tiny".to_owned(),
            model_path: "/data/models/tiny.gguf".into(),
            context: Tokens(4096),
            slots: 4,
            gpus: Vec::new(),
            extra_args: Vec::new(),
            device_minors: Vec::new(),
            trust_remote_code: false,
        };
        let environment = BTreeMap::from([("OMP_WAIT_POLICY".to_owned(), "passive".to_owned())]);
        let command = || Command { arguments: vec!["--metrics".to_owned()], environment: environment.clone() };
        Spec::new(&plan, command()).write(dir.path()).unwrap();
        let text = fs::read_to_string(dir.path().join("tiny-0.json")).unwrap();
        assert_eq!(
            text,
            r#"{"format":1,"replica":"tiny-0","generation":"gen_1","program":"/engine/bin/llama-server","args":["--metrics"],"env":{"OMP_WAIT_POLICY":"passive"}}"#
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(engine(dir.path(), &plan.replica), Some(EngineKind::LlamaCpp));
        assert_eq!(generation(dir.path(), &plan.replica), Some(plan.generation.clone()), "an agent that starts later knows which attempt runs");
        let other = ReplicaPlan { engine: EngineKind::Vllm, ..plan };
        Spec::new(&other, command()).write(dir.path()).unwrap();
        assert_eq!(engine(dir.path(), &other.replica), Some(EngineKind::Vllm));
        assert_eq!(engine(dir.path(), &ReplicaId::new("none").unwrap()), None);
    }

    /// The launcher's tests read the same files: what the agent writes is what the launcher takes.
    #[test]
    fn specs_change_only_on_purpose() {
        use crate::adapter::{
            command,
            tests::{ground, plan},
        };
        let table = [
            ("llama-cpu", include_str!("../../tests/golden/specs/llama-cpu.json"), plan(EngineKind::LlamaCpp, 4, 0, &[])),
            ("llama-1-card", include_str!("../../tests/golden/specs/llama-1-card.json"), plan(EngineKind::LlamaCpp, 4, 1, &["--flash-attn", "on"])),
            ("vllm-cpu", include_str!("../../tests/golden/specs/vllm-cpu.json"), plan(EngineKind::Vllm, 4, 0, &[])),
            ("vllm-2-cards", include_str!("../../tests/golden/specs/vllm-2-cards.json"), plan(EngineKind::Vllm, 32, 2, &["--dtype", "half"])),
        ];
        for (name, golden, plan) in table {
            let spec = Spec::new(&plan, command(&plan, ground(32)).unwrap());
            let now = serde_json::to_string_pretty(&spec).unwrap() + "\n";
            if std::env::var_os("WARDEN_WRITE_GOLDEN").is_some() {
                fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/specs/{name}.json")), &now).unwrap();
            } else {
                assert_eq!(now, golden, "{name}: run this test with WARDEN_WRITE_GOLDEN=1 when the change is wanted");
            }
        }
    }
}
