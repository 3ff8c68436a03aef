//! What a launch spec may say. Bytes and the replica's id go in; the program, arguments and environment of the engine come out, or
//! one sentence that names what is wrong. Pure: never touches a file and never starts anything.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

/// Largest accepted launch spec in bytes.
pub const MAX_BYTES: u64 = 64 * 1024;

const PROGRAM_FOLDER: &str = "/engine/bin/";
const MAX_ARGS: usize = 256;
const MAX_ARG_BYTES: usize = 8 * 1024;
const MAX_ENV: usize = 64;
const MAX_VALUE_BYTES: usize = 4 * 1024;

/// Environment names an engine may get: whole names.
const ENV_NAMES: &[&str] = &[
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "PYTHONHASHSEED",
    "PYTHONUNBUFFERED",
    "TOKENIZERS_PARALLELISM",
    "TRANSFORMERS_OFFLINE",
];

/// Environment names an engine may get: families. A name with PATH in it is refused all the same, since some of those name a library to load.
const ENV_FAMILIES: &[&str] = &["GGML_", "NCCL_", "OMP_", "VLLM_"];

/// Why a launch is refused. Each text names the cause and the way out.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The replica's id is not of the accepted form.
    #[error("launch: the replica's id must be 1 to 64 of a-z, 0-9 and '-'")]
    Replica,
    /// The spec cannot be opened or read.
    #[error("launch: cannot read the launch spec {path}: {reason}; load the model again so that it is written anew")]
    Unreadable {
        /// The file's path inside the sandbox.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// The spec is a link, a folder, a pipe or a device.
    #[error("launch: the launch spec {0} is not a plain file; it must be written by the agent, not linked")]
    NotPlain(String),
    /// The spec is larger than `MAX_BYTES`.
    #[error("launch: the launch spec is larger than {MAX_BYTES} bytes; shorten its arguments")]
    TooLarge,
    /// The spec is not the JSON document this launcher knows.
    #[error("launch: the launch spec is not understood: {0}")]
    Syntax(String),
    /// The spec has another format number.
    #[error("launch: the launch spec has format {0}, this launcher knows format 1; agent and launcher must be of one release")]
    Format(u32),
    /// The spec was written for another replica.
    #[error("launch: the launch spec was written for another replica than {0}")]
    WrongReplica(String),
    /// The program is not a plain name in the engine pack's program folder.
    #[error("launch: the program must be a plain name in {PROGRAM_FOLDER} of the engine pack")]
    Program,
    /// Too many or too long arguments, or a NUL byte in one.
    #[error("launch: the arguments are more than {MAX_ARGS}, longer than {MAX_ARG_BYTES} bytes, or hold a NUL byte")]
    Args,
    /// A name or value of the environment is not allowed.
    #[error("launch: the environment entry {0:?} is not on the list of what an engine may get")]
    Env(String),
}

/// An accepted launch.
#[derive(Debug, PartialEq, Eq)]
pub struct Launch {
    /// Absolute path of the program in the engine pack.
    pub program: String,
    /// Arguments without the program's own name.
    pub args: Vec<String>,
    /// The whole environment of the engine.
    pub env: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: u32,
    replica: String,
    generation: String,
    program: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// Accepts a replica's id of the form `[a-z0-9-]{1,64}`.
///
/// # Errors
/// [`Refusal::Replica`] for anything else.
pub fn check_replica(replica: &str) -> Result<(), Refusal> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=64).contains(&replica.len()) && replica.bytes().all(plain) { Ok(()) } else { Err(Refusal::Replica) }
}

/// Reads a launch spec that must have been written for `replica`.
///
/// # Errors
/// The first thing found that is not accepted.
pub fn parse(bytes: &[u8], replica: &str) -> Result<Launch, Refusal> {
    // The parser's own text could quote the file; only the place is told, so that a planted file shows nothing of itself.
    let document: Document =
        serde_json::from_slice(bytes).map_err(|error| Refusal::Syntax(format!("line {}, column {}", error.line(), error.column())))?;
    if document.format != 1 {
        return Err(Refusal::Format(document.format));
    }
    if document.replica != replica {
        return Err(Refusal::WrongReplica(replica.to_owned()));
    }
    if document.generation.is_empty() || document.generation.len() > 128 {
        return Err(Refusal::Syntax("generation must have 1 to 128 characters".to_owned()));
    }
    check_program(&document.program)?;
    let args_fit = document.args.len() <= MAX_ARGS && document.args.iter().all(|arg| arg.len() <= MAX_ARG_BYTES && !arg.contains('\0'));
    if !args_fit {
        return Err(Refusal::Args);
    }
    let mut env = checked_env(document.env)?;
    env.insert("HOME".to_owned(), "/tmp".to_owned());
    env.insert("PATH".to_owned(), "/engine/bin".to_owned());
    Ok(Launch { program: document.program, args: document.args, env })
}

fn check_program(program: &str) -> Result<(), Refusal> {
    let name = program.strip_prefix(PROGRAM_FOLDER).ok_or(Refusal::Program)?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.') { Ok(()) } else { Err(Refusal::Program) }
}

fn checked_env(env: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Refusal> {
    if env.len() > MAX_ENV {
        return Err(Refusal::Env(format!("{} entries", env.len())));
    }
    for (name, value) in &env {
        let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        let known = ENV_NAMES.contains(&name.as_str()) || ENV_FAMILIES.iter().any(|family| name.starts_with(family));
        let fits = name.len() <= 64 && value.len() <= MAX_VALUE_BYTES && !value.contains('\0');
        if !(known && fits && name.bytes().all(plain) && !name.contains("PATH")) {
            return Err(Refusal::Env(name.chars().take(64).collect()));
        }
    }
    Ok(env)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn good() -> Value {
        json!({"format": 1, "replica": "qwen-0", "generation": "g1", "program": "/engine/bin/llama-server",
               "args": ["--model", "/data/models/x.gguf"], "env": {"OMP_WAIT_POLICY": "passive"}})
    }

    fn with(key: &str, value: Value) -> Result<Launch, Refusal> {
        let mut document = good();
        document[key] = value;
        parse(document.to_string().as_bytes(), "qwen-0")
    }

    /// The agent's own tests write these files.
    #[test]
    fn every_spec_that_the_agent_writes_is_taken() {
        for spec in [
            include_str!("../../engines/tests/golden/specs/llama-cpu.json"),
            include_str!("../../engines/tests/golden/specs/llama-1-card.json"),
            include_str!("../../engines/tests/golden/specs/vllm-cpu.json"),
            include_str!("../../engines/tests/golden/specs/vllm-2-cards.json"),
        ] {
            let launch = parse(spec.as_bytes(), "tiny-0").unwrap();
            assert!(launch.env.contains_key("CUDA_VISIBLE_DEVICES") && !launch.args.is_empty());
        }
    }

    #[test]
    fn an_engine_gets_its_arguments_and_only_the_listed_environment() {
        let launch = parse(good().to_string().as_bytes(), "qwen-0").unwrap();
        assert_eq!(launch.program, "/engine/bin/llama-server");
        assert_eq!(launch.args, ["--model", "/data/models/x.gguf"]);
        let names: Vec<_> = launch.env.keys().map(String::as_str).collect();
        assert_eq!(names, ["HOME", "OMP_WAIT_POLICY", "PATH"]);
    }

    #[test]
    fn a_spec_of_another_replica_does_not_start_here() {
        assert_eq!(with("replica", json!("other")), Err(Refusal::WrongReplica("qwen-0".into())));
    }

    #[test]
    fn a_program_outside_the_pack_does_not_start() {
        for program in ["/bin/sh", "/engine/bin/../../bin/sh", "/engine/bin/", "/engine/bin/..", "/engine/bin/a/b", "llama-server", "/engine/bin/a\0"]
        {
            assert_eq!(with("program", json!(program)), Err(Refusal::Program), "{program:?}");
        }
    }

    #[test]
    fn a_library_cannot_be_slipped_into_the_engine() {
        for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "GGML_BACKEND_PATH", "VLLM_NCCL_SO_PATH", "HOME", "omp_x", "OMP_X=Y", ""]
        {
            assert!(matches!(with("env", json!({name: "1"})), Err(Refusal::Env(_))), "{name:?}");
        }
        assert!(matches!(with("env", json!({"OMP_X": "a\0b"})), Err(Refusal::Env(_))));
    }

    #[test]
    fn counts_and_lengths_have_a_cap() {
        assert_eq!(with("args", json!(vec!["x"; MAX_ARGS + 1])), Err(Refusal::Args));
        assert_eq!(with("args", json!(["x".repeat(MAX_ARG_BYTES + 1)])), Err(Refusal::Args));
        assert_eq!(with("args", json!(["a\0b"])), Err(Refusal::Args));
        let many: BTreeMap<_, _> = (0..=MAX_ENV).map(|n| (format!("OMP_{n}"), "1")).collect();
        assert!(matches!(with("env", json!(many)), Err(Refusal::Env(_))));
    }

    #[test]
    fn a_newer_or_unknown_document_is_refused_instead_of_half_understood() {
        assert_eq!(with("format", json!(2)), Err(Refusal::Format(2)));
        assert!(matches!(with("rlimits", json!({})), Err(Refusal::Syntax(_))));
        assert!(matches!(parse(b"root:$6$secret:1::::", "qwen-0"), Err(Refusal::Syntax(text)) if !text.contains("secret")));
    }

    #[test]
    fn a_replica_id_cannot_leave_its_folder() {
        for id in ["", "..", "a/b", "A", "a_b", "a.b", &"x".repeat(65)] {
            assert_eq!(check_replica(id), Err(Refusal::Replica), "{id:?}");
        }
        assert_eq!(check_replica("qwen3-8b-0"), Ok(()));
    }
}
