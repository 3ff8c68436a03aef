//! The local screen, one process per terminal: tty1 and the serial line. It shows where the box is to be reached and how it is, as the
//! agent tells it over a local socket, and offers what must work without the agent: restart, switch off, resets. It writes to its own
//! terminal only, and only when something has changed.

mod agent;
mod bus;
mod keys;
mod menu;
mod paper;
mod resets;
mod screen;
mod terminal;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use agent::{Silence, Status};
use keys::Keys;
use menu::{Effect, State};
use paper::Paper;
use screen::{Frame, View};

const SOCKET: &str = "/run/warden-agent/console.sock";
const RESETS: &str = "/state/reset";
/// Between two questions to the agent.
const PAUSE: Duration = Duration::from_secs(2);
/// How long the second byte of an arrow key may take on a slow line.
const SEQUENCE: Duration = Duration::from_millis(100);
/// After so long without a key an open menu closes.
const IDLE: Duration = Duration::from_secs(120);

/// What reaches the screen.
enum News {
    Typed(Vec<u8>),
    Status(Box<Result<Status, Silence>>),
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (name, socket) = match words.as_slice() {
        ["--terminal", name] => (*name, SOCKET),
        ["--terminal", name, "--agent", socket] => (*name, *socket),
        _ => {
            eprintln!(
                "usage: warden-console --terminal NAME [--agent SOCKET] (speaks on standard input and output; NAME, such as tty1 or ttyS0, tells how)"
            );
            return ExitCode::from(2);
        }
    };
    terminal::keys_at_once();
    let (send, news) = sync_channel(16);
    terminal::read_keys(send.clone(), News::Typed);
    ask_agent(send, PathBuf::from(socket));
    match show(Paper::of_terminal(name), Path::new(socket), &news) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("console: cannot write to {name}: {error}; is it connected?");
            ExitCode::FAILURE
        }
    }
}

/// Asks in a thread of its own: an agent that hangs does not hold up the keys.
fn ask_agent(send: SyncSender<News>, socket: PathBuf) {
    std::thread::spawn(move || {
        while send.send(News::Status(Box::new(agent::status(&socket)))).is_ok() {
            std::thread::sleep(PAUSE);
        }
    });
}

fn show(paper: Paper, socket: &Path, news: &Receiver<News>) -> std::io::Result<()> {
    let begun = Instant::now();
    let version = std::fs::read_to_string("/usr/lib/warden/version").unwrap_or_default();
    let (mut state, mut keys, mut pressed) = (State::Status, Keys::default(), Instant::now());
    let mut status = Err(Silence::NotThere);
    let mut shown: Option<Frame> = None;
    let mut size = terminal::size();
    loop {
        if size != terminal::size() {
            // What the terminal did with the old lines is its own affair; all are drawn anew.
            size = terminal::size();
            shown = None;
        }
        let recovery = ["recovery-state", "recovery-boot"].iter().find_map(|name| std::fs::read_to_string(format!("/run/warden-boot/{name}")).ok());
        let resets = resets::sentences(Path::new(RESETS));
        let now = |state: &State, status: &Result<Status, Silence>| {
            let view = View { version: &version, status, recovery: recovery.as_deref(), resets: &resets, uptime: begun.elapsed() };
            screen::frame(&view, state, size)
        };
        put(paper, &mut shown, now(&state, &status))?;
        let found = match news.recv_timeout(if keys.waiting() { SEQUENCE } else { PAUSE }) {
            Ok(News::Status(fresh)) => {
                status = *fresh;
                Vec::new()
            }
            Ok(News::Typed(bytes)) => keys.feed(&bytes),
            Err(RecvTimeoutError::Timeout) => keys.pause().into_iter().collect(),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        if !found.is_empty() {
            pressed = Instant::now();
        } else if pressed.elapsed() > IDLE {
            state = state.idle();
        }
        for key in found {
            let (next, effect) = state.press(key);
            state = next;
            match effect {
                None => {}
                Some(Effect::Redraw) => shown = None,
                Some(effect) => {
                    put(paper, &mut shown, now(&state, &status))?;
                    state = state.told(match effect {
                        Effect::Update => agent::update_from_stick(socket),
                        effect => bus::carry_out(effect),
                    });
                    pressed = Instant::now();
                }
            }
        }
    }
}

fn put(paper: Paper, shown: &mut Option<Frame>, now: Frame) -> std::io::Result<()> {
    let text = paper.draw(shown.as_ref(), &now);
    *shown = Some(now);
    if text.is_empty() {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
