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

use serde::Serialize;
use warden_domain::engine::ReplicaPlan;

/// The engine's program inside a pack.
const PROGRAM: &str = "/engine/bin/llama-server";

/// The document, as the launcher knows it.
#[derive(Serialize)]
pub(super) struct Spec {
    format: u32,
    replica: String,
    generation: String,
    program: &'static str,
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

impl Spec {
    pub(super) fn new(plan: &ReplicaPlan, args: Vec<String>, env: BTreeMap<String, String>) -> Self {
        Self { format: 1, replica: plan.replica.as_str().to_owned(), generation: plan.generation.as_str().to_owned(), program: PROGRAM, args, env }
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

#[cfg(test)]
mod tests {
    use warden_domain::{
        engine::EngineKind,
        ids::{GenerationId, ReplicaId},
        units::Tokens,
    };

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
        };
        Spec::new(&plan, vec!["--metrics".to_owned()], BTreeMap::from([("OMP_WAIT_POLICY".to_owned(), "passive".to_owned())]))
            .write(dir.path())
            .unwrap();
        let text = fs::read_to_string(dir.path().join("tiny-0.json")).unwrap();
        assert_eq!(
            text,
            r#"{"format":1,"replica":"tiny-0","generation":"gen_1","program":"/engine/bin/llama-server","args":["--metrics"],"env":{"OMP_WAIT_POLICY":"passive"}}"#
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
