//! A load on cards, as the reader's state decides it. FOR THE SERVING ROOM: layouts with cards are taken by its API, not by the reader's.
//! As long as `POST /api/models` describes no `gpus`, the cases only note that this part was left open; once it does, they demand it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use warden_fake_nvml::Scenario;

use crate::console::{Console, short};
use crate::http::Reply;
use crate::result::CaseResult;

/// A card that no scenario has.
const STRANGER: &str = "GPU-00000000-0000-4000-8000-00000000dead";

/// Where a new model takes its cards.
#[derive(Clone, Copy)]
enum Field {
    /// `gpus`
    Plain,
    /// `layout.gpus`
    InLayout,
}

/// Looks into the API's own description.
fn field(console: &Console) -> Result<Option<Field>, String> {
    let described = console.expect("GET", "/api/openapi.json", None, &[200])?.json();
    let body = &described["paths"]["/api/models"]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"];
    let name = body.as_str().and_then(|path| path.rsplit('/').next()).ok_or("POST /api/models describes no body")?;
    let properties = &described["components"]["schemas"][name]["properties"];
    Ok(if properties["gpus"].is_object() {
        Some(Field::Plain)
    } else if properties["layout"].is_object() {
        Some(Field::InLayout)
    } else {
        None
    })
}

/// Registers the tiny model on a card and asks for a load. The answer is that of the call that refused, or of the load.
fn ask(console: &Console, field: Field, name: &str, gpu: &str) -> Result<Reply, String> {
    let mut body = json!({"path": "tiny.gguf", "served_model_name": name});
    match field {
        Field::Plain => body["gpus"] = json!([gpu]),
        Field::InLayout => body["layout"] = json!({"gpus": [gpu]}),
    }
    let made = console.call("POST", "/api/models", Some(&body))?;
    if made.status >= 300 {
        return Ok(made);
    }
    let id = made.json()["id"].as_str().map(str::to_owned).ok_or("the registered model has no id")?;
    console.call("POST", &format!("/api/models/{id}/load"), None)
}

/// The sentence of a refusal.
fn refusal(reply: &Reply) -> Option<String> {
    let detail: Value = reply.json()["detail"].clone();
    (reply.status >= 400).then(|| detail["message"].as_str().map(str::to_owned)).flatten()
}

fn left_open(result: &mut CaseResult) {
    result.note("LEFT OPEN: this build takes no cards for a model, so no load on a card could be asked for");
}

/// While the driver hangs: known cards are decided by the last known facts, at once; unknown ones are refused by name.
pub fn decided_by_last_facts(console: &Console, told: &Scenario, in_time: Duration, result: &mut CaseResult) -> Result<(), String> {
    let Some(field) = field(console)? else {
        left_open(result);
        return Ok(());
    };
    let known = told.card.first().and_then(|card| card.uuid.as_deref()).ok_or("the scenario has no card")?;
    let asked = Instant::now();
    let reply = ask(console, field, "on-a-known-card", known)?;
    let took = asked.elapsed();
    result.expect(reply.status == 202 || refusal(&reply).is_some(), format!("a load on a known card is decided: {}", short(&reply)));
    result.expect(took < in_time, format!("it is decided after {took:?}, without waiting for the driver"));
    let reply = ask(console, field, "on-a-strange-card", STRANGER)?;
    result.expect(refusal(&reply).is_some_and(|said| said.contains(STRANGER)), format!("a card nobody knows is refused by name: {}", short(&reply)));
    Ok(())
}

/// Without a library every load on a card is refused with the reason.
pub fn refused_without_cards(console: &Console, result: &mut CaseResult) -> Result<(), String> {
    let Some(field) = field(console)? else {
        left_open(result);
        return Ok(());
    };
    let reply = ask(console, field, "on-no-card", STRANGER)?;
    let said = refusal(&reply).unwrap_or_default().to_lowercase();
    result.expect(
        ["driver", "library"].iter().any(|word| said.contains(word)),
        format!("a load on a card is refused with the reason: {}", short(&reply)),
    );
    Ok(())
}
