//! The agent's side: listens to the reader, remembers its last word, and answers from memory. On a dev machine it also keeps the reader
//! running as a child that ends with it.
//!
//! In: where the reader is. Out: `Gpus`. Dropping the client ends its tasks and the child.

use std::{
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::UnixStream,
    process::Command,
    task::JoinHandle,
    time::sleep,
};
use warden_domain::{
    change::{Changes, Topic},
    clock,
    gpu::{GpuNotice, GpuReport, GpuSnapshot, Gpus},
};

use crate::{
    trust::{Trouble, shown, take_over},
    wire::{Frame, LONGEST},
};

/// Between two tries to connect.
const RECONNECT: Duration = Duration::from_millis(250);
/// First and longest wait before a reader that ended is started again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// A reader that ran this long was fine; the wait begins anew.
const FINE_AFTER: Duration = Duration::from_secs(60);

/// Where the reader is.
#[derive(Clone, Debug)]
pub enum Source {
    /// A service of the system: it is there or comes back by itself.
    Service(PathBuf),
    /// A child of the agent.
    Child(Child),
}

/// A reader that the agent starts.
#[derive(Clone, Debug)]
pub struct Child {
    /// The program `warden-gpu`.
    pub program: PathBuf,
    /// Folder for its socket.
    pub folder: PathBuf,
    /// Another library than the installed one.
    pub library: Option<PathBuf>,
}

/// Name of a child's socket in its folder.
const SOCKET: &str = "gpu.sock";

/// The last word of the reader.
struct Heard {
    frame: Frame,
    snapshot: Arc<GpuSnapshot>,
    at: Instant,
    read_at: Option<Timestamp>,
}

struct Memory {
    begun: Instant,
    heard: Option<Heard>,
    trouble: Trouble,
}

/// The cards as the reader told them last.
pub struct GpuClient {
    memory: Arc<Mutex<Memory>>,
    tasks: Vec<JoinHandle<()>>,
}

impl GpuClient {
    /// Begins to listen, and for a child to run it. Call it inside a Tokio runtime.
    #[must_use]
    pub fn start(source: Source, changes: Changes) -> Arc<Self> {
        let memory = Arc::new(Mutex::new(Memory { begun: Instant::now(), heard: None, trouble: Trouble::default() }));
        let (socket, child) = match source {
            Source::Service(socket) => (socket, None),
            Source::Child(child) => (child.folder.join(SOCKET), Some(child)),
        };
        let mut tasks = vec![tokio::spawn(listen(socket, Arc::clone(&memory), changes))];
        tasks.extend(child.map(|child| tokio::spawn(keep_running(child, Arc::clone(&memory)))));
        Arc::new(Self { memory, tasks })
    }

    fn with<T>(&self, look: impl FnOnce(&Memory) -> T) -> T {
        look(&self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for GpuClient {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Gpus for GpuClient {
    fn snapshot(&self) -> Arc<GpuSnapshot> {
        self.with(Memory::shown)
    }

    fn report(&self) -> GpuReport {
        self.with(|memory| GpuReport {
            snapshot: memory.shown(),
            read_at: memory.heard.as_ref().and_then(|heard| heard.read_at),
            notices: memory.heard.as_ref().map(|heard| heard.frame.notices.clone()).unwrap_or_default(),
        })
    }
}

impl Memory {
    fn shown(&self) -> Arc<GpuSnapshot> {
        let silent = self.heard.as_ref().map_or(self.begun, |heard| heard.at).elapsed();
        shown(self.heard.as_ref().map(|heard| &heard.snapshot), silent, &self.trouble)
    }

    /// Takes a frame; true when it is news: another state, other cards, other notices.
    fn take(&mut self, frame: Frame) -> bool {
        let before = self.heard.as_ref().map(|heard| (&heard.frame, heard.at.elapsed()));
        let frame = take_over(before, frame);
        let outline = |frame: &Frame| -> (_, _, Vec<_>, Vec<GpuNotice>) {
            let snapshot = &frame.snapshot;
            let ids = snapshot.cards.iter().map(|card| card.id.clone()).collect();
            (std::mem::discriminant(&snapshot.reading), snapshot.driver.clone(), ids, frame.notices.clone())
        };
        let news = self.heard.as_ref().is_none_or(|heard| outline(&heard.frame) != outline(&frame));
        let read_at = frame.age_s.and_then(|age| SignedDuration::try_from_secs_f64(age).ok()).and_then(|age| clock::now().checked_sub(age).ok());
        self.heard = Some(Heard { snapshot: Arc::new(frame.snapshot.clone()), frame, at: Instant::now(), read_at });
        self.trouble = Trouble::default();
        news
    }
}

fn edit<T>(memory: &Mutex<Memory>, change: impl FnOnce(&mut Memory) -> T) -> T {
    change(&mut memory.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Connects, hears until the connection ends, and connects again, for ever.
async fn listen(socket: PathBuf, memory: Arc<Mutex<Memory>>, changes: Changes) {
    loop {
        let ended = match UnixStream::connect(&socket).await {
            Ok(stream) => hear(stream, &memory, &changes).await,
            Err(cause) => format!("The GPU reader does not answer on {}: {cause}.", socket.display()),
        };
        edit(&memory, |memory| {
            // Why a child is not there says more than that its socket is not.
            memory.trouble.cause.get_or_insert(ended);
        });
        sleep(RECONNECT).await;
    }
}

/// Hears lines until the connection ends; says why it did.
async fn hear(stream: UnixStream, memory: &Mutex<Memory>, changes: &Changes) -> String {
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = LONGEST as u64;
        match (&mut lines).take(limit).read_until(b'\n', &mut line).await {
            Err(cause) => return format!("The connection to the GPU reader broke: {cause}."),
            Ok(0) => return "The GPU reader ended the connection.".to_owned(),
            Ok(_) if line.last() != Some(&b'\n') => return "The GPU reader sent half a line, or one that is too long.".to_owned(),
            Ok(_) => {}
        }
        match Frame::parse(&line) {
            Ok(frame) => {
                if edit(memory, |memory| memory.take(frame)) {
                    changes.publish(Topic::Gpus);
                }
            }
            Err(cause) => return format!("The GPU reader said what the agent does not understand: {cause}."),
        }
    }
}

/// Starts the child, waits for its end, and starts it again, for ever.
async fn keep_running(child: Child, memory: Arc<Mutex<Memory>>) {
    let mut wait = BACKOFF.0;
    loop {
        let begun = Instant::now();
        let (cause, hopeless) = match run(&child).await {
            Ok(status) => (format!("The GPU reader ended ({status}); it is started again."), false),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => (not_built(&child.program), true),
            Err(cause) => (format!("The GPU reader {} cannot be started: {cause}.", child.program.display()), false),
        };
        tracing::warn!("{cause}");
        edit(&memory, |memory| memory.trouble = Trouble { cause: Some(cause), hopeless });
        if begun.elapsed() >= FINE_AFTER {
            wait = BACKOFF.0;
        }
        sleep(wait).await;
        wait = (wait * 2).min(BACKOFF.1);
    }
}

fn not_built(program: &Path) -> String {
    format!("The GPU reader {} is not there. Build it with `cargo build -p warden-gpu`.", program.display())
}

/// Runs the child to its end. It holds the other end of our pipe and ends when that closes, however we end.
async fn run(child: &Child) -> io::Result<ExitStatus> {
    // A relative path: sockets' paths are short by nature, folders are not.
    let mut command = Command::new(&child.program);
    command.arg("--socket").arg(SOCKET).arg("--end-with-input").current_dir(&child.folder);
    if let Some(library) = &child.library {
        command.arg("--library").arg(library);
    }
    // A group of its own: what a terminal sends is for the agent.
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0).kill_on_drop(true).spawn()?;
    // `wait` would close our end of the pipe first.
    let _open = running.stdin.take();
    running.wait().await
}
