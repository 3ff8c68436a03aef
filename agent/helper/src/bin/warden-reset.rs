//! The consumer of resets: runs once at each start, as root, before the agent and the network service. It follows at most one waiting
//! record, finishes what a power cut broke off, and ends.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use warden_helper::reset::consumer::{End, World, run};
use warden_helper::reset::desk::Desk;

const DATA: &str = "/data";
/// How long a factory reset waits for the data partition.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    tracing_subscriber::fmt().without_time().with_ansi(false).with_target(false).with_writer(std::io::stderr).init();
    let mut world = World {
        data: Path::new(DATA),
        data_is_there: &mut wait_for_data,
        random: &mut warden_helper::random,
        say: &mut |line| tracing::warn!("{line}"),
        step: &mut |_| Ok(()),
    };
    match run(&Desk::appliance(), &mut world) {
        Ok(End::GoOn) => ExitCode::SUCCESS,
        Ok(End::Restart) => restart(),
        Err(fault) => {
            tracing::error!("{fault}");
            ExitCode::FAILURE
        }
    }
}

fn wait_for_data() -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if mounts.lines().any(|line| line.split_ascii_whitespace().nth(4) == Some(DATA)) {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Has the system manager restart the machine, and stays until it does: nothing that waits for this program may begin before.
fn restart() -> ExitCode {
    tracing::warn!("the machine restarts now with a new identity");
    // This signal is the system manager's wish for a restart (its unit ctrl-alt-del.target).
    if let Err(error) = kill(Pid::from_raw(1), Signal::SIGINT) {
        tracing::error!("the system manager cannot be asked for a restart: {error}; restart the machine by hand");
        return ExitCode::FAILURE;
    }
    std::thread::sleep(Duration::from_secs(90));
    ExitCode::FAILURE
}
