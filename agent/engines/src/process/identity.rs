//! Which process is which: boot id, process id and start time together name a process for ever, a process id alone does not.
//!
//! Reads /proc. Never signals anything by itself.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

/// The name of one process that was or is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// Boot it lives in.
    pub(super) boot: String,
    /// Process id.
    pub(super) pid: i32,
    /// Start time in clock ticks since that boot.
    pub(super) start: u64,
}

impl Identity {
    /// The identity of a process that runs now.
    pub(super) fn of(pid: i32) -> Option<Self> {
        let boot = boot_id()?;
        let stat = Stat::of(pid)?;
        Some(Self { boot, pid, start: stat.start })
    }

    /// Whether this very process still runs. A dead one that nobody has collected yet does not.
    pub(super) fn lives(&self) -> bool {
        boot_id().as_ref() == Some(&self.boot) && Stat::of(self.pid).is_some_and(|stat| stat.start == self.start && !stat.dead)
    }

    /// Whether another process has this one's id now. Then nothing of this one's session can be left.
    pub(super) fn was_replaced(&self) -> bool {
        boot_id().as_ref() != Some(&self.boot) || Stat::of(self.pid).is_some_and(|stat| stat.start != self.start)
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.boot, self.pid, self.start)
    }
}

fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|text| text.trim().to_owned())
}

/// The few fields of /proc/PID/stat that matter here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    dead: bool,
    session: i32,
    start: u64,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The second field is the program's name in brackets and may hold anything, brackets too.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // A killed process is shown as a zombie as soon as its first thread is gone, while its other threads still hold its sockets.
        let threads: u32 = fields.get(17)?.parse().ok()?;
        let dead = matches!(*fields.first()?, "Z" | "X" | "x") && threads <= 1;
        Some(Self { dead, session: fields.get(3)?.parse().ok()?, start: fields.get(19)?.parse().ok()? })
    }
}

/// Living processes of the session that a process led.
pub(super) fn session_of(leader: i32) -> Vec<i32> {
    processes().filter(|&pid| Stat::of(pid).is_some_and(|stat| stat.session == leader && !stat.dead)).collect()
}

/// Processes that were told to listen on this socket: engines whose launch was not recorded any more.
pub(super) fn listening_on(socket: &Path) -> Vec<i32> {
    let wanted = socket.as_os_str().as_encoded_bytes();
    processes()
        .filter(|&pid| {
            let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
            let words: Vec<&[u8]> = line.split(|&b| b == 0).collect();
            words.windows(2).any(|pair| matches!(pair[0], b"--host" | b"--uds") && pair[1] == wanted)
        })
        .collect()
}

fn processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok).filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_cannot_lie_about_its_start_by_its_name() {
        let text = "42 (a) Z 1 2) R 1 42 43 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        assert_eq!(Stat::parse(text), Some(Stat { dead: false, session: 43, start: 777 }));
        assert_eq!(Stat::parse("42 (a) R"), None);
    }

    #[test]
    fn a_killed_engine_whose_threads_still_hold_its_socket_is_not_gone_yet() {
        let stat = |threads| Stat::parse(&format!("42 (a) Z 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 777 0 0")).unwrap();
        assert!(!stat(3).dead && stat(1).dead && stat(0).dead);
    }

    #[test]
    fn a_recycled_process_id_is_not_the_old_process() {
        let me = Identity::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.lives() && !me.was_replaced());
        let older = Identity { start: me.start.wrapping_sub(1), ..me.clone() };
        assert!(!older.lives() && older.was_replaced());
        let other_boot = Identity { boot: "other".to_owned(), ..me };
        assert!(!other_boot.lives() && other_boot.was_replaced());
    }
}
