//! The GPU reader: cards of each scenario, a call that hangs, no library.
//!
//! A real agent starts the real reader over a simulated NVML library, as `make run SCENARIO=…` does; no real card takes part.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warden_fake_nvml::{Card, Scenario};

use super::super::{Case, Tier, case};
use crate::agent::{AgentSetup, AgentUnderTest};
use crate::command;
use crate::console::{Console, short};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

mod load;

/// The cases of this room.
pub const CASES: &[Case] = &[case("gpu-page", Tier::Host, page), case("gpu-hang", Tier::Host, hang), case("gpu-none", Tier::Host, none)];

/// An answer that waited for the driver takes longer.
const IN_TIME: Duration = Duration::from_secs(1);

/// An agent over a library, somebody signed in, and the folder of the library.
struct Bench {
    agent: AgentUnderTest,
    console: Console,
    _library: tempfile::TempDir,
}

impl Bench {
    /// `scenario` is what the library tells; without one there is no library.
    fn start(stage: &mut Stage, task: &Task, scenario: Option<&str>, engine: Option<PathBuf>) -> Result<Self, String> {
        let program = stage.agent_program(&task.log)?;
        let mut cargo = stage.in_tree("cargo");
        // With the agent, so that dependencies are not built once more with fewer features.
        cargo.args(["build", "--quiet", "-p", "warden-agent", "-p", "warden-gpu", "-p", "warden-fake-nvml"]);
        command::run_ok("building the GPU reader and the simulated library", cargo, Duration::from_secs(1800), &task.log)?;
        let beside = program.with_file_name("warden-gpu");
        if !beside.is_file() {
            return Err(format!("the reader {} is not there: it must lie beside the agent", beside.display()));
        }
        // Not in the agent's folder: what names that folder counts as an engine.
        let folder = tempfile::Builder::new().prefix("nvml").tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
        let library = match scenario {
            Some(text) => warden_fake_nvml::lay(folder.path(), &stage.places.debug_program("libwarden_fake_nvml.so"), text)?,
            None => folder.path().join(warden_fake_nvml::FILE),
        };
        let more = format!("gpu_library = {:?}\n", library.display().to_string());
        let engine_program = engine.clone().unwrap_or_default();
        let setup = AgentSetup { engine, more, ..AgentSetup::dev(program, engine_program) };
        let mut agent = AgentUnderTest::start(setup, &task.log)?;
        let console = agent.claimed()?;
        Ok(Self { agent, console, _library: folder })
    }

    /// The document of the cards.
    fn gpus(&self) -> Result<Value, String> {
        self.console.expect("GET", "/api/system/gpus", None, &[200]).map(|reply| reply.json())
    }

    /// Waits until the reader stands so.
    fn wait_reading(&self, word: &str) -> Result<Value, String> {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let told = self.gpus()?;
            if told["reading"] == word {
                return Ok(told);
            }
            if Instant::now() >= until {
                return Err(format!("the cards are not {word} after 30 s: {told}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn end(mut self, result: &mut CaseResult) -> Result<(), String> {
        let code = self.agent.stop(Duration::from_secs(40))?;
        result.expect(code == Some(0), format!("the agent ends cleanly (exit code {code:?})"));
        result.expect(self.agent.engines().is_empty(), "no engine is left behind");
        result.expect(!self.agent.said().contains("panicked"), "the agent's log shows no panic");
        Ok(())
    }
}

fn scenario(name: &str) -> Result<(&'static str, Scenario), String> {
    let text = warden_fake_nvml::named(name).ok_or_else(|| format!("there is no scenario {name}"))?;
    Ok((text, Scenario::parse(text)?))
}

/// `gpu-page`
fn page(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    for name in ["four-alike", "narrow-link"] {
        let (text, told) = scenario(name)?;
        let bench = Bench::start(stage, task, Some(text), None)?;
        let document = bench.wait_reading("live")?;
        let shown = document["gpus"].as_array().cloned().unwrap_or_default();
        result.expect(shown.len() == told.card.len(), format!("{name}: {} cards of {}", shown.len(), told.card.len()));
        for (shown, told) in shown.iter().zip(&told.card) {
            let want = figures(told);
            let have = narrowed(shown, &want);
            result.expect(have == want, format!("{name}: the card's figures are the scenario's: {have} for {want}"));
        }
        result.expect(document["simulated"] == true, format!("{name}: the API calls the cards simulated"));
        result.expect(document["driver"] == json!(told.driver), format!("{name}: driver {}", document["driver"]));
        result.expect(document["probed_at"].is_string(), format!("{name}: read at {}", document["probed_at"]));
        page_shows(name, &told, &bench.console.page("/ui/gpus")?, result);
        bench.end(result)?;
    }
    Ok(())
}

fn page_shows(name: &str, told: &Scenario, page: &str, result: &mut CaseResult) {
    let rows = page.matches("<tr id=\"card-").count();
    result.expect(rows == told.card.len(), format!("{name}: the page has {rows} rows"));
    result.expect(page.contains("GPUs are simulated"), format!("{name}: the page says that they are simulated"));
    let narrow: Vec<_> = told.card.iter().filter(|card| card.width_now < card.width_max).collect();
    let warned = page.matches("Fewer lanes than it could use").count();
    result.expect(warned == narrow.len(), format!("{name}: {warned} width warnings for {} narrow cards", narrow.len()));
    for card in &told.card {
        let lanes = format!("x{} of x{}", card.width_now.unwrap_or_default(), card.width_max.unwrap_or_default());
        result.expect(page.contains(&lanes), format!("{name}: the page shows {lanes}"));
        for holder in &card.holder {
            result.expect(page.contains(&format!("process {}", holder.pid)), format!("{name}: the page names the holder {}", holder.pid));
        }
    }
}

/// What the API must say of a card.
fn figures(card: &Card) -> Value {
    let holders: Vec<Value> = card.holder.iter().map(|holder| json!({"pid": holder.pid, "memory_mib": holder.memory_mib})).collect();
    let limit = [card.acoustic_c, card.gpu_max_c, card.slowdown_c].into_iter().flatten().min();
    json!({
        "uuid": card.uuid, "name": card.name, "memory_total_mib": card.memory_total_mib, "memory_used_mib": card.memory_used_mib,
        "utilization_pct": card.utilisation_percent.map(f64::from), "temperature_c": card.temperature_c, "temperature_limit_c": limit,
        "power_w": card.power_mw.map(|mw| f64::from(mw) / 1000.0), "power_limit_w": card.power_cap_mw.map(|mw| f64::from(mw) / 1000.0),
        "pcie": {"width": card.width_now, "width_max": card.width_max, "generation": card.generation_now, "generation_max": card.generation_max,
            "narrow": card.width_now.zip(card.width_max).map(|(now, most)| now < most)},
        "holders": holders,
    })
}

/// The shown card with only what is compared.
fn narrowed(shown: &Value, like: &Value) -> Value {
    match (shown, like) {
        (Value::Object(shown), Value::Object(like)) => {
            like.iter().map(|(key, like)| (key.clone(), shown.get(key).map_or(json!("missing"), |value| narrowed(value, like)))).collect()
        }
        (Value::Array(shown), Value::Array(like)) if shown.len() == like.len() => {
            shown.iter().zip(like).map(|(shown, like)| narrowed(shown, like)).collect()
        }
        (shown, _) => shown.clone(),
    }
}

/// `gpu-hang`
fn hang(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let (text, told) = scenario("hang")?;
    let engine = stage.engine_program(&task.log)?;
    let bench = Bench::start(stage, task, Some(text), Some(engine))?;
    let before = bench.wait_reading("live")?;
    let stale = bench.wait_reading("stale")?;
    let error = stale["probe_error"].as_str().unwrap_or_default();
    result.expect(error.contains("nvmlDeviceGetTemperature") && error.contains("card 0"), format!("the call is named: {error}"));
    result.expect(stale["since"].is_string(), format!("since when it hangs: {}", stale["since"]));
    result.expect(stale["gpus"] == before["gpus"], format!("the {} last known cards stay", told.card.len()));

    let asked = Instant::now();
    bench.gpus()?;
    let api = asked.elapsed();
    let asked = Instant::now();
    let page = bench.console.page("/ui/gpus")?;
    let shown = asked.elapsed();
    result.figure("api_s", api.as_secs_f64());
    result.figure("page_s", shown.as_secs_f64());
    result.expect(api < IN_TIME && shown < IN_TIME, format!("while it hangs the API answers after {api:?}, the page after {shown:?}"));
    result.expect(page.contains("have not answered for") && page.contains("nvmlDeviceGetTemperature"), "the page says since when, and in what");
    let rows = page.matches("<tr id=\"card-").count();
    result.expect(rows == told.card.len(), format!("the page shows the {rows} last known cards"));
    let health = bench.console.expect("GET", "/healthz", None, &[200])?;
    result.expect(health.json()["gpu"]["state"] == "failing", format!("the health probe tells it: {}", short(&health)));

    stage.write_tiny_model(&bench.agent.model_path("tiny.gguf"))?;
    load::decided_by_last_facts(&bench.console, &told, IN_TIME, result)?;
    bench.end(result)
}

/// `gpu-none`
fn none(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let engine = stage.engine_program(&task.log)?;
    let bench = Bench::start(stage, task, None, Some(engine))?;
    let document = bench.wait_reading("no_library")?;
    result.expect(document["gpus"] == json!([]) && document["simulated"] == false, format!("no cards: {document}"));
    let page = bench.console.page("/ui/gpus")?;
    result.expect(page.contains("no NVIDIA driver"), "the page says that there is no driver");

    stage.write_tiny_model(&bench.agent.model_path("tiny.gguf"))?;
    let (id, _) = bench.console.serve("tiny.gguf", "tiny", Duration::from_secs(60))?;
    let (_, secret) = bench.console.make_key("gpu-none")?;
    let answer = bench.console.chat(&secret, "tiny", "Hello")?;
    result.expect(answer["choices"][0]["message"].is_object(), "a model on processors answers");
    bench.console.unload(&id)?;

    load::refused_without_cards(&bench.console, result)?;
    bench.end(result)
}
