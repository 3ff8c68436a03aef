//! The start: llama-server's command line, and the lines by which a load's phases are told.

use std::{
    collections::HashMap,
    io::Write,
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use crate::serve::Engine;

/// What of the command line matters here. Everything else is taken and passed over, as long as it looks like an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// A path that ends in `.sock`, or an address.
    pub host: String,
    /// Port of an address.
    pub port: u16,
    /// The model's file.
    pub model: String,
    /// Its name in answers.
    pub alias: String,
    /// Requests at the same time.
    pub slots: usize,
    /// Window of each slot, in tokens.
    pub context: u64,
}

/// Reads a command line.
///
/// # Errors
/// In llama.cpp's words: a word that is no argument, a model that is not said or not there.
pub fn read(words: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let mut said: HashMap<String, String> = HashMap::new();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            return Err(format!("error: invalid argument: {word}"));
        }
        let (name, mut value) = match word.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (word, None),
        };
        if value.is_none() {
            // A negative number is a value.
            value = words.next_if(|next| !next.starts_with('-') || next.parse::<f64>().is_ok());
        }
        said.insert(name, value.unwrap_or_default());
    }
    let mut take = |name: &str, usual: &str| said.remove(name).unwrap_or_else(|| usual.to_owned());
    let number = |text: String| text.parse::<u64>().map_err(|_| format!("error: invalid number: {text}"));
    let model = take("--model", "");
    if !Path::new(&model).is_file() {
        return Err(format!("failed to load model, '{model}'"));
    }
    let slots = number(take("--parallel", "1"))?.max(1);
    let context = number(take("--ctx-size", "4096"))? / slots;
    let port = u16::try_from(number(take("--port", "8080"))?).map_err(|e| e.to_string())?;
    let slots = usize::try_from(slots).map_err(|e| e.to_string())?;
    Ok(Wanted { host: take("--host", "127.0.0.1"), port, alias: take("--alias", "scripted"), model, slots, context })
}

/// Writes a line of the engine's log: time since the start, level, text.
pub fn log(level: char, text: &str) {
    static BEGUN: OnceLock<Instant> = OnceLock::new();
    let past = BEGUN.get_or_init(Instant::now).elapsed();
    let (minutes, seconds) = (past.as_secs() / 60, past.as_secs() % 60);
    let line = format!("{minutes}.{seconds:02}.{:03}.{:03} {level} {text}\n", past.subsec_millis(), past.subsec_micros() % 1000);
    let _nobody_reads = std::io::stderr().write_all(line.as_bytes());
}

/// Goes through the phases of a load, then lets requests in.
pub async fn load(wanted: Wanted, engine: Arc<Engine>) {
    let pause = Duration::from_millis(engine.script().map_or(0, |script| script.load_ms) / 5);
    let phases: [&[&str]; 5] = [
        &["srv  llama_server: initializing ...", "srv         start: setting address family to AF_UNIX", "srv    load_model: loading model"],
        &["llama_model_loader: loaded meta data with 0 key-value pairs and 0 tensors from a script (version GGUF V3 (latest))"],
        &[
            "load_tensors: loading model tensors, this can take a while... (load_mode = scripted)",
            "load_tensors:   CPU_Mapped model buffer size =     1.00 MiB",
        ],
        &["llama_context: constructing llama_context", "llama_kv_cache:        CPU KV buffer size =     8.00 MiB"],
        &["cmn  common_init_: warming up the model with an empty run - please wait ... (--no-warmup to disable)"],
    ];
    for lines in phases {
        lines.iter().for_each(|line| log('I', line));
        tokio::time::sleep(pause).await;
    }
    engine.open();
    log('I', "srv  llama_server: model loaded");
    log('I', &format!("srv  llama_server: listening on {}", wanted.host));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<Wanted, String> {
        read(words.iter().map(|w| (*w).to_owned()))
    }

    #[test]
    fn the_agents_own_command_lines_are_taken() {
        let golden = include_str!("../../../../agent/engines/tests/golden/commands/llama-2-cpus-4-slots.txt");
        let me = std::env::current_exe().unwrap();
        let words: Vec<String> =
            golden.lines().skip_while(|l| !l.is_empty()).skip(1).map(|l| l.replace("/data/models/tiny.gguf", me.to_str().unwrap())).collect();
        let wanted = read(words.into_iter()).unwrap();
        assert_eq!((wanted.host.as_str(), wanted.slots, wanted.context), ("/run/warden-engine/tiny-0/engine.sock", 4, 4096));
        assert_eq!(wanted.alias, "tiny");
    }

    #[test]
    fn what_is_no_argument_or_no_model_ends_it() {
        assert!(of(&["serve"]).unwrap_err().contains("invalid argument: serve"));
        assert!(of(&["--model", "/nonexistent"]).unwrap_err().contains("failed to load model"));
        assert_eq!(of(&["--seed", "-1", "--model", "/proc/self/exe", "--port=9"]).unwrap().port, 9);
    }
}
