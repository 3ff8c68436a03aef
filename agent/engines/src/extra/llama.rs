//! The box's own flags of llama.cpp's server, by its help of b11434. Everything else is the admin's: the help tells which of its flags read
//! or write files, none imports code, and the pack is of that one version.

use super::{
    Owned,
    Why::{Access, Cards, Life, Listening, Model, Name, Outside, Path, Telling, Text, Window},
};

/// Flags whose value is a file beside the model, by its name alone.
pub(super) const BESIDE: &[&str] = &[
    "--mmproj",
    "-mm",
    "--lora",
    "--spec-draft-model",
    "-md",
    "--model-draft",
    "--chat-template-file",
    "--grammar-file",
    "--json-schema-file",
    "-jf",
];

/// Refused.
pub(super) const OWNED: &[Owned] = &[
    (&["--host", "--port", "--reuse-port", "--api-prefix", "--ssl-key-file", "--ssl-cert-file"], Listening),
    (&["--api-key", "--api-key-file", "--cors-origins", "--cors-methods", "--cors-headers", "--cors-credentials"], Access),
    (&["--model", "-m", "--model-url", "-mu", "--docker-repo", "-dr", "--hf-repo", "-hf", "-hfr", "--hf-file", "-hff", "--hf-token", "-hft"], Model),
    (&["--models-dir", "--models-preset", "--models-max", "--models-autoload", "--mmproj-url", "-mmu"], Model),
    (&["--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft", "--hf-repo-v", "-hfv", "-hfrv", "--hf-file-v", "-hffv"], Model),
    (&["--embd-gemma-default", "--fim-qwen-1.5b-default", "--fim-qwen-3b-default", "--fim-qwen-7b-default", "--fim-qwen-7b-spec"], Model),
    (&["--fim-qwen-14b-spec", "--fim-qwen-30b-default", "--gpt-oss-20b-default", "--gpt-oss-120b-default"], Model),
    (&["--vision-gemma-4b-default", "--vision-gemma-12b-default"], Model),
    (&["--alias", "-a"], Name),
    (&["--ctx-size", "-c", "--parallel", "-np", "--kv-unified", "-kvu", "-no-kvu", "--kv-unified-per-slot"], Window),
    (&["--device", "-dev", "--rpc"], Cards),
    (&["--metrics", "--slots", "--log-disable", "--log-file", "--log-jsonl", "--log-colors", "--log-prefix", "--log-timestamps"], Telling),
    (&["--verbose", "-v", "--log-verbose", "--verbosity", "-lv", "--log-verbosity"], Telling),
    (&["--log-prompts-dir", "--slot-save-path"], Text),
    (&["--path", "--props", "--media-path", "--ui", "--webui", "--ui-config", "--webui-config", "--ui-config-file", "--webui-config-file"], Outside),
    (&["--ui-mcp-proxy", "--webui-mcp-proxy", "--tools", "--tools-runtime", "--mcp-servers-config", "--mcp-servers-json"], Outside),
    (&["--agent", "-ag", "-no-ag", "--offline", "--video-ffmpeg-dir"], Outside),
    (&["--lora-scaled", "--control-vector", "--control-vector-scaled", "--lookup-cache-static", "-lcs", "--lookup-cache-dynamic", "-lcd"], Path),
    (&["--help", "--usage", "-h", "--version", "--list-devices", "--cache-list", "-cl", "--completion-bash", "--sleep-idle-seconds"], Life),
];
