//! `hub-discover`: files, sizes and kinds of a repository over several pages; and each way in which a hub refuses, as its own sentence.

use serde_json::{Value, json};
use warden_fixtures::TinyModel;

use super::bench::{Bench, words};
use super::hub::{COMMIT, Fault, Gate, Held, TOKEN};
use crate::agent::free_port;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const TENSORS: &[(&str, usize)] = &[
    ("model-00001-of-00002.safetensors", 500),
    ("model-00002-of-00002.safetensors", 400),
    ("consolidated.safetensors", 900),
    ("original/model.safetensors", 900),
];

fn lay(bench: &Bench) {
    let tiny = TinyModel::default().bytes();
    bench.hub.add(
        "lab/tiny-GGUF",
        Gate::Open,
        vec![
            ("README.md", Held::small("# tiny")),
            ("tiny-F16.gguf", Held::large(tiny.clone())),
            ("tiny.gguf", Held::large(tiny)),
            ("Q8_0/tiny-Q8_0-00001-of-00002.gguf", Held::large(vec![1; 3000])),
            ("Q8_0/tiny-Q8_0-00002-of-00002.gguf", Held::large(vec![2; 2000])),
            ("half-00001-of-00002.gguf", Held::large(vec![2; 100])),
            ("mmproj-tiny-f16.gguf", Held::large(vec![3; 700])),
            ("tiny-lora-f16.gguf", Held::large(vec![4; 300])),
            ("tokenizer.py", Held::small("import os")),
            (".hidden/tricky.gguf", Held::large(vec![5; 300])),
        ],
    );
    let mut files: Vec<(&str, Held)> = TENSORS.iter().map(|(path, size)| (*path, Held::large(vec![7; *size]))).collect();
    files.push(("config.json", Held::small(r#"{"architectures":["DeepseekV3ForCausalLM"],"torch_dtype":"bfloat16","secret_key":1}"#)));
    files.push(("model.safetensors.index.json", Held::small("{}")));
    files.push(("tokenizer.json", Held::small("{}")));
    bench.hub.add("lab/tensors", Gate::Open, files);
    bench.hub.add("lab/gated", Gate::Gated, vec![("tiny-Q4_0.gguf", Held::large(TinyModel::default().bytes()))]);
    bench.hub.add("lab/disabled", Gate::Disabled, vec![("tiny-Q4_0.gguf", Held::large(vec![9; 10]))]);
}

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::start(stage, task)?;
    lay(&bench);
    files_and_choices(&bench, result)?;
    tensors(&bench, result)?;
    refusals(&bench, result)?;
    token(&bench, result)?;
    pages(&bench, result)?;
    unreachable(&bench, result)?;
    let said = bench.agent.said();
    result.expect(!said.contains(TOKEN), "the agent's log does not hold the token");
    result.expect(!said.contains("panicked"), "the agent's log shows no panic");
    Ok(())
}

fn discover(bench: &Bench, query: &str) -> Result<Value, String> {
    bench.console.expect("GET", &format!("/api/models/discover?{query}"), None, &[200]).map(|reply| reply.json())
}

fn files_and_choices(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    let found = discover(bench, "repo_id=lab/tiny-GGUF&revision=%20&fit=true")?;
    result.expect(found["commit"] == COMMIT, format!("the revision is resolved to a commit first ({})", found["commit"]));
    let kind = |path: &str| {
        let files = found["files"].as_array().into_iter().flatten();
        files
            .into_iter()
            .find(|file| file["path"] == path)
            .map(|file| format!("{} {}", file["kind"].as_str().unwrap_or_default(), file["size_bytes"]))
    };
    for (path, wanted) in [
        ("README.md", "other 6"),
        ("Q8_0/tiny-Q8_0-00002-of-00002.gguf", "gguf 2000"),
        ("mmproj-tiny-f16.gguf", "mmproj 700"),
        ("tiny-lora-f16.gguf", "adapter 300"),
        ("tokenizer.py", "code 9"),
    ] {
        result.expect(kind(path).as_deref() == Some(wanted), format!("{path} is {wanted} ({:?})", kind(path)));
    }
    result.expect(kind(".hidden/tricky.gguf").is_none(), "a file that would hide in a folder is not listed");
    result.expect(found["never_fetched"] == json!(["tokenizer.py"]), format!("a program is said to be left alone: {}", found["never_fetched"]));
    let pages = bench.hub.asked("/tree/").len();
    result.expect(pages >= 3, format!("the list came in {pages} pages, and a next page at another host was not followed"));
    let choices: Vec<(String, Value, Value, bool)> = found["choices"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| {
            (c["filename"].as_str().unwrap_or_default().to_owned(), c["size_bytes"].clone(), c["quantisation"].clone(), c["incomplete"].is_null())
        })
        .collect();
    let has = |filename: &str, format: Value, whole: bool| choices.iter().any(|(f, _, q, w)| f == filename && *q == format && *w == whole);
    result.expect(choices.len() == 4, format!("four models can be chosen, image part and adapter are none: {choices:?}"));
    result.expect(has("Q8_0/tiny-Q8_0-00001-of-00002.gguf", json!("Q8_0"), true), "two parts are one choice, with the format of its name");
    let split = choices.iter().find(|(f, ..)| f.starts_with("Q8_0")).map(|(_, size, ..)| size.clone());
    result.expect(split == Some(json!(5000)), "its size is that of both parts");
    result.expect(has("half-00001-of-00002.gguf", Value::Null, false), "a set with a part missing says so");
    let again = discover(bench, "repo_id=lab/tiny-GGUF&revision=%20")?;
    let from_header = again["choices"].as_array().into_iter().flatten().find(|c| c["filename"] == "tiny.gguf").map(|c| c["quantisation"].clone());
    result.expect(from_header == Some(json!("F16")), format!("a format that no name tells is read from the header ({from_header:?})"));
    let sent: u64 = bench.hub.asked("tiny.gguf").iter().map(|asked| asked.sent).sum();
    result.expect(sent <= 256 * 1024, format!("only the beginning of a file was fetched for that ({sent} bytes)"));
    Ok(())
}

fn tensors(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    let found = discover(bench, "repo_id=lab/tensors")?;
    let choice = &found["choices"][0];
    result.expect(
        choice["weights_bytes"] == 900 && choice["backend"] == "vllm" && choice["quantisation"] == "bfloat16",
        format!("the parts are counted once and their copies not at all: {choice}"),
    );
    let config = &found["config"];
    result
        .expect(config["torch_dtype"] == "bfloat16" && config["secret_key"].is_null(), format!("chosen keys of config.json are handed on: {config}"));
    Ok(())
}

fn refusals(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    let ask = |path: &str, query: &str| bench.console.call("GET", &format!("{path}?{query}"), None);
    for (what, query, status, code, needles) in [
        ("a repository that is not there", "repo_id=lab/none", 403, "auth_required", ["lab/none", "Check the spelling"]),
        ("a revision that is not there", "repo_id=lab/tiny-GGUF&revision=v9", 404, "not_found", ["v9", "main"]),
        ("no name of a repository", "repo_id=tiny", 422, "invalid_value", ["tiny", "owner/name"]),
    ] {
        let reply = ask("/api/models/discover", query)?;
        let (body, said) = (reply.json(), words(&reply.json()));
        let fine = reply.status == status && body["detail"]["error_code"] == code && needles.iter().all(|needle| said.contains(needle));
        result.expect(fine, format!("{what} ({}): {said}", reply.status));
    }
    for (what, repo, needles) in
        [("a gated repository", "lab/gated", ["accept the terms", "access token"]), ("a disabled one", "lab/disabled", ["disabled", "another"])]
    {
        let reply = bench.console.call("POST", "/api/models/fit-preview", Some(&json!({"hf_repo": repo})))?;
        let said = words(&reply.json());
        result.expect(reply.status == 403 && needles.iter().all(|needle| said.contains(needle)), format!("{what} ({}): {said}", reply.status));
        let reply = bench.console.call("POST", "/api/models/downloads", Some(&json!({"hf_repo": repo})))?;
        result.expect(reply.status == 403, format!("{what} is not downloaded either ({})", reply.status));
    }
    bench.hub.fault("/api/models/lab/busy", Fault::Status(429, vec![("ratelimit", "\"api\";r=0;t=55")]), 0, 1);
    let reply = ask("/api/models/discover", "repo_id=lab/busy")?;
    let after = reply.headers.iter().find(|(name, _)| name == "retry-after").map(|(_, value)| value.clone());
    result
        .expect(reply.status == 429 && after.as_deref() == Some("55"), format!("a hub that asks for patience: {} ({after:?})", words(&reply.json())));
    bench.hub.fault("/api/models/lab/ill", Fault::Status(500, vec![("x-request-id", "Root=1-case")]), 0, 1);
    let reply = ask("/api/models/discover", "repo_id=lab/ill")?;
    result
        .expect(reply.status == 502 && words(&reply.json()).contains("Root=1-case"), format!("a hub that is out of order: {}", words(&reply.json())));
    Ok(())
}

fn token(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    bench.console.expect("PUT", "/api/hub", Some(&json!({"token": TOKEN})), &[200])?;
    let settings = bench.console.expect("GET", "/api/hub", None, &[200])?.text();
    result.expect(settings.contains("\"has_token\":true") && !settings.contains(TOKEN), "a token is kept and never shown again");
    let file = bench.agent.home().join("state/hub-token");
    let mode = std::fs::metadata(&file).map(|about| std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o777);
    result.expect(matches!(mode, Ok(0o600)), format!("its file is for the agent alone ({mode:?})"));
    let fit = bench.fit("lab/gated", "tiny-Q4_0.gguf", 1024, 1)?;
    result.expect(fit["verdict"] == "fits", format!("with it the gated repository is open ({})", fit["verdict"]));
    let asked = bench.hub.asked("lab/gated");
    result.expect(asked.iter().any(|a| !a.storage && a.authorization.is_some()), "the hub was told the token");
    result.expect(asked.iter().any(|a| a.storage), "the storage server was asked");
    result.expect(asked.iter().all(|a| !a.storage || a.authorization.is_none()), "the storage server, another host, was not told it");
    result.expect(asked.iter().all(|a| !a.path.contains(TOKEN)), "it is in no address");
    let elsewhere = format!("http://127.0.0.1:{}", free_port()?);
    let moved = bench.console.expect("PUT", "/api/hub", Some(&json!({"endpoint": elsewhere})), &[200])?.json();
    result.expect(moved["has_token"] == false, "another address does not inherit the token");
    let back = bench.console.expect("PUT", "/api/hub", Some(&json!({"endpoint": ""})), &[200])?.json();
    result.expect(back["has_token"] == true && back["endpoint"] == bench.hub.endpoint(), "back at the old address it counts again");
    Ok(())
}

fn pages(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    let page = bench.console.page("/ui/models/hub?repo=lab/tiny-GGUF")?;
    let shown = ["tiny-F16.gguf", "Q8_0/tiny-Q8_0-00001-of-00002.gguf", "half-00001-of-00002.gguf"].iter().all(|name| page.contains(name));
    result.expect(page.contains("Never fetched") && page.contains("tokenizer.py"), "the page says which files it never fetches");
    result.expect(shown && page.contains("<details"), "the page shows the files with verdicts and the arithmetic to unfold");
    let page = bench.console.page("/ui/models/hub?repo=lab/none")?;
    result.expect(page.contains("lab/none") && page.contains("role=\"alert\""), "and the sentence of a refusal");
    Ok(())
}

fn unreachable(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    for (what, endpoint, needle) in [
        ("a hub that nobody runs", format!("http://127.0.0.1:{}", free_port()?), "refuses the connection"),
        ("a hub with a name nobody knows", "http://hub.invalid".to_owned(), "name"),
    ] {
        bench.console.expect("PUT", "/api/hub", Some(&json!({"endpoint": endpoint})), &[200])?;
        let reply = bench.console.call("GET", "/api/models/discover?repo_id=lab/tiny-GGUF", None)?;
        let said = words(&reply.json());
        let fine = reply.status == 502 && said.contains("cannot be reached") && said.contains(needle) && said.contains("mirror");
        result.expect(fine, format!("{what} ({}): {said}", reply.status));
    }
    Ok(())
}
