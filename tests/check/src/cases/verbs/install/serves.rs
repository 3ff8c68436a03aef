//! The installed box at work, as its owner meets it: the administrator of the answer file signs in, a model comes from a stick, and the
//! engine that the installer's stick brought answers.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use warden_vm::{BuilderRoot, Guest, quiet};

use super::super::storage::bench::{STICK, disk_of, make_stick};
use crate::console::Console;
use crate::front_door::FrontDoor;
use crate::stage::Task;

/// Name under which the model is served.
const NAME: &str = "from-stick";
/// Hardware address of a guest's port, when nobody chooses one.
pub const MAC: &str = "52:54:00:12:34:56";

/// What the box showed.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// Its engine packs.
    pub packs: Value,
    /// Its ports with their settings.
    pub ports: Value,
    /// The answer to the chat request.
    pub answer: Value,
    /// From the first sign-in to the answer.
    pub seconds: f64,
}

/// Signs in, imports the tiny model from a stick, loads it and asks it something.
pub fn serve(guest: &mut Guest, builder: &BuilderRoot, run: &Path, ports: (u16, u16), task: &Task) -> Result<Served, String> {
    let door = FrontDoor { encrypted: format!("https://127.0.0.1:{}", ports.0), plain: format!("http://127.0.0.1:{}", ports.1) };
    let mut console = door.wait_console(quiet(60), &task.log)?;
    console.wait_healthy(quiet(60))?;
    let begun = Instant::now();
    console.login()?;
    let packs = console.expect("GET", "/api/packs", None, &[200])?.json();
    let ports = console.expect("GET", "/api/network", None, &[200])?.json();
    make_stick(builder, run, &task.log)?;
    guest.plug(&run.join(STICK), STICK, true).map_err(|e| e.to_string())?;
    let id = import(&console)?;
    console.load(&id)?;
    console.wait_state(&id, &["running"], quiet(60))?;
    let (_, key) = console.make_key("first")?;
    let answer = console.chat(&key, NAME, "hello")?;
    Ok(Served { packs, ports, answer, seconds: begun.elapsed().as_secs_f64() })
}

/// Brings the model from the stick to the box; its id.
fn import(console: &Console) -> Result<String, String> {
    let until = Instant::now() + quiet(30);
    let source = loop {
        // Right after a start on a busy host the disk manager may take longer than the bus waits for it.
        let document = console.call("GET", "/api/storage", None)?.json();
        let stick = disk_of(&document, STICK).filter(|disk| disk["importable"] == true);
        match stick.and_then(|disk| disk["key"].as_str().map(str::to_owned)) {
            Some(key) => break key,
            None if Instant::now() > until => return Err(format!("the stick with the model does not show up: {document}")),
            None => std::thread::sleep(std::time::Duration::from_millis(250)),
        }
    };
    let body = json!({"source": source, "file": "stick-model.gguf", "served_model_name": NAME});
    let begun = console.expect("POST", "/api/storage/import", Some(&body), &[202])?.json();
    let task = format!("/api/tasks/{}", begun["task"].as_str().unwrap_or_default());
    let until = Instant::now() + quiet(40);
    loop {
        let now = console.expect("GET", &task, None, &[200])?.json();
        match now["state"].as_str() {
            Some("done") => break,
            Some("running") if Instant::now() < until => std::thread::sleep(std::time::Duration::from_millis(300)),
            _ => return Err(format!("the model was not imported: {now}")),
        }
    }
    let models = console.expect("GET", "/api/models", None, &[200])?.json();
    let found = models["models"].as_array().and_then(|all| all.iter().find(|model| model["served_model_name"] == NAME));
    found.and_then(|model| model["id"].as_str().map(str::to_owned)).ok_or_else(|| format!("no model {NAME} is registered: {models}"))
}
