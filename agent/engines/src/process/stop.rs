//! Ending an engine: asked once, asked again (which llama.cpp takes as "now"), then killed.
//!
//! In: an identity. Out: once nothing of its session runs any more, or the sentence that it cannot be ended. A process whose start time
//! is another one is never signalled.

use std::time::{Duration, Instant};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::sleep;

use super::identity::{Identity, session_of};

const STEPS: &[(Duration, Signal)] =
    &[(Duration::ZERO, Signal::SIGTERM), (Duration::from_secs(5), Signal::SIGTERM), (Duration::from_secs(8), Signal::SIGKILL)];
const GIVE_UP: Duration = Duration::from_secs(25);
const LOOK: Duration = Duration::from_millis(30);

/// Ends the process and its session. `false` when something of it still runs after about 25 s (stuck in the kernel).
pub(super) async fn end(process: &Identity) -> bool {
    let begin = Instant::now();
    let mut steps = STEPS.iter().peekable();
    loop {
        let left = survivors(process);
        if left.is_empty() {
            return true;
        }
        let elapsed = begin.elapsed();
        if elapsed > GIVE_UP {
            return false;
        }
        if let Some((_, signal)) = steps.next_if(|(due, _)| elapsed >= *due) {
            for pid in left {
                let _ = kill(Pid::from_raw(pid), *signal);
                // A process that somebody stopped hears nothing until it goes on.
                let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
            }
        }
        sleep(LOOK).await;
    }
}

/// What still runs of it: the process itself and whatever it started.
fn survivors(process: &Identity) -> Vec<i32> {
    if process.was_replaced() {
        return Vec::new();
    }
    let mut left = session_of(process.pid);
    if process.lives() && !left.contains(&process.pid) {
        left.push(process.pid);
    }
    left
}
