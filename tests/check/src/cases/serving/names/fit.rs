//! `fit-verdict` and `fit-unknown`: the table of a file, component by component, against what the genuine engine says when it loads that very
//! file; and files that nobody here can reckon with, which are unknown and not guessed at.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use warden_fixtures::TinyModel;
use warden_fixtures::gguf::{Gguf, Value as Key};

use super::bench::Bench;
use super::hub::{Gate, Held};
use crate::command;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const MIB: f64 = 1024.0 * 1024.0;

/// What an engine says of its buffers, in bytes.
#[derive(Debug, Default, PartialEq)]
struct Buffers {
    weights: f64,
    kv: f64,
    compute: f64,
    output: f64,
}

/// Sums the lines of one load. A model with windows has two token memories.
fn buffers(log: &[String]) -> Buffers {
    let mut sums = Buffers::default();
    for line in log {
        let Some((before, after)) = line.split_once("buffer size =") else { continue };
        let Some(mib) = after.split_whitespace().next().and_then(|number| number.parse::<f64>().ok()) else { continue };
        let bytes = mib * MIB;
        let before = before.trim_end();
        if before.ends_with("KV") {
            sums.kv += bytes;
        } else if before.ends_with("compute") {
            sums.compute += bytes;
        } else if before.ends_with("output") {
            sums.output += bytes;
        } else if before.ends_with("model") && !before.contains("REPACK") {
            sums.weights += bytes;
        }
    }
    sums
}

fn row(table: &Value, key: &str) -> f64 {
    let rows = table["rows"].as_array().into_iter().flatten();
    rows.into_iter().find(|row| row["key"] == key).and_then(|row| row["bytes"].as_f64()).unwrap_or(f64::NAN)
}

/// How far a figure is off, as a share of the engine's. The engine prints two digits of a MiB; what is within that is not off.
fn off(said: f64, engine: f64) -> f64 {
    let rest = ((said - engine).abs() - 0.005 * MIB).max(0.0);
    if engine > 0.0 { rest / engine } else { f64::from(u8::from(rest > 0.0)) }
}

/// The small chat model of `make model`.
fn small_model(stage: &Stage, task: &Task) -> Result<PathBuf, String> {
    let finished = command::run_ok("make model", stage.in_tree("agent/dev/model.sh"), Duration::from_secs(600), &task.log)?;
    finished.output.iter().rev().map(PathBuf::from).find(|path| path.is_file()).ok_or_else(|| "make model named no file".to_owned())
}

/// Runs `fit-verdict`.
pub fn verdict(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let smol = small_model(stage, task)?;
    let bench = Bench::start(stage, task)?;
    let tiny = TinyModel::default().bytes();
    let smol_bytes = std::fs::read(&smol).map_err(|e| format!("{}: {e}", smol.display()))?;
    std::fs::write(bench.agent.model_path("tiny.gguf"), &tiny).map_err(|e| e.to_string())?;
    std::fs::hard_link(&smol, bench.agent.model_path("smol.gguf"))
        .or_else(|_| std::fs::copy(&smol, bench.agent.model_path("smol.gguf")).map(drop))
        .map_err(|e| format!("the small model: {e}"))?;
    bench.hub.add("lab/two", Gate::Open, vec![("tiny.gguf", Held::large(tiny)), ("smol.gguf", Held::large(smol_bytes))]);

    let (mut weights_error, mut compute_error) = (0f64, 0f64);
    for (file, context, slots) in [("tiny.gguf", 4096, 4), ("tiny.gguf", 1000, 1), ("smol.gguf", 2048, 2), ("smol.gguf", 8192, 1)] {
        let table = bench.fit("lab/two", file, context, slots)?;
        let engine = loaded(&bench, file, context, slots)?;
        result.note(format!("{file}, {context} tokens, {slots} at once: the engine says {engine:?}"));
        weights_error = weights_error.max(off(row(&table, "weights"), engine.weights));
        compute_error = compute_error.max(off(row(&table, "compute"), engine.compute));
        for (key, figure) in [("kv", engine.kv), ("output", engine.output)] {
            let said = row(&table, key);
            result.expect(off(said, figure) <= 0.001, format!("{file}: {key} is {said} bytes, the engine says {figure}"));
        }
        let rows: f64 = table["rows"].as_array().into_iter().flatten().filter_map(|row| row["bytes"].as_f64()).sum();
        result.expect(table["sum_bytes"].as_f64() == Some(rows), "the rows add up to the sum");
        result.expect(table["verdict"] == "fits", format!("{file} fits into this machine, where it runs ({})", table["verdict"]));
    }
    result.figure("weights_error", weights_error);
    result.figure("compute_error", compute_error);
    result.expect(weights_error <= 0.01, format!("weights are right within 1 % ({weights_error:.4})"));
    result.expect(compute_error <= 0.3, format!("the buffer for computing is right within 30 % ({compute_error:.3})"));
    let sent: u64 = bench.hub.asked("smol.gguf").iter().map(|asked| asked.sent).sum();
    result.expect(sent < 8 << 20, format!("no file was fetched for that, only headers ({sent} bytes)"));
    recorded(stage, task, result)
}

/// Loads the file in the genuine engine, as the agent starts it, and reads what that says.
fn loaded(bench: &Bench, file: &str, context: u64, slots: u64) -> Result<Buffers, String> {
    let name = format!("{}-{context}-{slots}", file.trim_end_matches(".gguf"));
    let body = serde_json::json!({"path": file, "served_model_name": name, "context": context, "slots": slots});
    let made = bench.console.expect("POST", "/api/models", Some(&body), &[201])?.json();
    let id = made["id"].as_str().ok_or("the model has no id")?.to_owned();
    bench.console.load(&id)?;
    bench.console.wait_state(&id, &["running"], Duration::from_secs(60))?;
    let log = bench.console.expect("GET", &format!("/api/models/{id}/logs?lines=5000"), None, &[200])?.json();
    let lines: Vec<String> = log["lines"].as_array().into_iter().flatten().filter_map(|line| line.as_str().map(str::to_owned)).collect();
    bench.console.unload(&id)?;
    bench.console.wait_state(&id, &["stopped"], Duration::from_secs(40))?;
    let found = buffers(&lines);
    if found.weights > 0.0 && found.kv > 0.0 && found.compute > 0.0 {
        Ok(found)
    } else {
        Err(format!("the engine's log tells no buffers: {found:?}"))
    }
}

/// The figures recorded from engines and models that are not here, as vectors of the room's own tests.
fn recorded(stage: &Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut cargo = stage.in_tree("cargo");
    cargo.args(["nextest", "run", "-p", "warden-models", "--no-tests", "fail", "-E", "test(the_recorded_figures_of)"]);
    let finished = command::run(cargo, Duration::from_secs(900), &task.log)?;
    let ran = finished.output.iter().filter(|line| line.contains("PASS") && line.contains("the_recorded_figures_of")).count();
    result.expect(finished.ok() && ran >= 2, format!("the recorded figures come out ({ran} tests ran): {}", finished.tail(2)));
    Ok(())
}

/// A header of an architecture with some keys, and a vocabulary.
fn header(architecture: &str, keys: &[(&str, u32)]) -> Vec<u8> {
    let mut file = Gguf::default();
    file.key("general.architecture", Key::Text(architecture.to_owned()));
    file.key("general.type", Key::Text("model".to_owned()));
    for (name, number) in keys {
        file.key(&format!("{architecture}.{name}"), Key::U32(*number));
    }
    file.key("tokenizer.ggml.tokens", Key::Texts(vec!["a".to_owned(); 100]));
    let mut bytes = file.bytes().0;
    bytes.resize(bytes.len() + 4096, 0);
    bytes
}

const PLAIN: &[(&str, u32)] =
    &[("block_count", 4), ("embedding_length", 64), ("attention.head_count", 8), ("feed_forward_length", 256), ("context_length", 2048)];

/// Runs `fit-unknown`.
pub fn unknown(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task)?;
    let with = |more: &[(&'static str, u32)]| [PLAIN, more].concat();
    let without: Vec<(&str, u32)> = PLAIN.iter().copied().filter(|(name, _)| *name != "block_count").collect();
    let rows: Vec<(&str, Vec<u8>, &str)> = vec![
        ("latent.gguf", header("deepseek2", &with(&[("attention.kv_lora_rank", 512)])), "deepseek2"),
        ("recurrent.gguf", header("mamba", PLAIN), "mamba"),
        ("hybrid.gguf", header("qwen3next", &with(&[("full_attention_interval", 4)])), "qwen3next"),
        ("invented.gguf", header("zorp", PLAIN), "zorp"),
        ("latent-llama.gguf", header("llama", &with(&[("attention.kv_lora_rank", 512)])), "llama.attention.kv_lora_rank"),
        ("mixed-qwen.gguf", header("qwen3", &with(&[("ssm.state_size", 128)])), "qwen3.ssm.state_size"),
        ("short.gguf", header("llama", &without), "llama.block_count"),
    ];
    let files = rows.iter().map(|(name, bytes, _)| (*name, Held::large(bytes.clone()))).collect();
    bench.hub.add("lab/odd", Gate::Open, files);
    for (file, _, needle) in &rows {
        let table = bench.fit("lab/odd", file, 1024, 1)?;
        let missing = table["missing"].to_string();
        let silent = table["sum_bytes"].is_null() && table["recommended_max_model_len"].is_null() && row(&table, "kv").is_nan();
        result.expect(
            table["verdict"] == "unknown" && missing.contains(needle) && silent,
            format!("{file}: {} because of {missing}, and no sum is made up", table["verdict"]),
        );
    }
    bench.hub.add("lab/plain", Gate::Open, vec![("plain.gguf", Held::large(header("llama", PLAIN)))]);
    let table = bench.fit("lab/plain", "plain.gguf", 1024, 1)?;
    result.expect(table["verdict"] == "fits", format!("the same file without those keys is judged ({})", table["verdict"]));

    bench.hub.add(
        "lab/tensors",
        Gate::Open,
        vec![
            ("model.safetensors", Held::large(vec![0; 900])),
            ("config.json", Held::small(r#"{"architectures":["DeepseekV3ForCausalLM"],"kv_lora_rank":512}"#)),
        ],
    );
    let table = bench.fit("lab/tensors", "model.safetensors", 1024, 1)?;
    result.expect(
        table["verdict"] == "unknown" && table["missing"].to_string().contains("DeepseekV3ForCausalLM"),
        format!("safetensors of an architecture that is not known: {}", table["missing"]),
    );
    let page = bench.console.page("/ui/models/hub?repo=lab/odd")?;
    result.expect(page.contains("cannot be told") && page.contains("mamba"), "the page says so too");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_an_engines_log_are_summed_by_what_they_are() {
        let log: Vec<String> = [
            "load_tensors:   CPU_Mapped model buffer size =   235.00 MiB",
            "load_tensors:   CPU_REPACK model buffer size =    12.66 MiB",
            "llama_context:        CPU  output buffer size =     4.00 MiB",
            "llama_kv_cache:        CPU KV buffer size =    24.00 MiB",
            "llama_kv_cache: size =   24.00 MiB (  2048 cells)",
            "llama_kv_cache:        CPU KV buffer size =    60.00 MiB",
            "sched_reserve:        CPU compute buffer size =    21.00 MiB",
        ]
        .map(str::to_owned)
        .to_vec();
        let found = buffers(&log);
        assert_eq!(found, Buffers { weights: 235.0 * MIB, kv: 84.0 * MIB, compute: 21.0 * MIB, output: 4.0 * MIB });
        assert!(off(100.0 * MIB, 100.004 * MIB) < 1e-9 && off(90.0 * MIB, 100.0 * MIB) > 0.09);
    }
}
