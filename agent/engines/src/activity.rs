//! What the processes of an engine did so far, as the system counts it, and what it says of them when something is wrong.
//!
//! Process ids or a control group in, figures or texts out. Reads /proc and /sys only, never the engine. Blocking, but each call reads a
//! few small files. What may not be read is left out.

use std::{fs, path::Path, time::Duration};

use warden_domain::{engine::Activity, units::Bytes};

/// The kernel counts processor time of /proc in hundredths of a second, whatever its own clock is.
const TICKS_PER_SECOND: u64 = 100;
/// Most processes of an engine that are looked at.
const MOST: usize = 256;
/// Most bytes of one text of evidence.
const LONGEST: usize = 64 * 1024;

/// Of the processes given; `None` when none of them can be read.
pub(crate) fn of_processes(pids: &[i32], log: &Path) -> Option<Activity> {
    let mut seen = false;
    let mut activity = Activity { log: length(log), ..Activity::default() };
    for pid in pids.iter().take(MOST) {
        let Some(ticks) = fs::read_to_string(format!("/proc/{pid}/stat")).ok().as_deref().and_then(ticks) else { continue };
        seen = true;
        activity.processor += Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND)) + waited(*pid);
        let read = fs::read_to_string(format!("/proc/{pid}/io")).ok().as_deref().and_then(|text| after(text, "read_bytes: "));
        activity.read = activity.read + Bytes(read.unwrap_or(0));
    }
    seen.then_some(activity)
}

/// Of everything in a control group; `None` when its processor time cannot be read.
pub(crate) fn of_group(group: &str, log: &Path) -> Option<Activity> {
    let folder = group_folder(group)?;
    let used = after(&fs::read_to_string(folder.join("cpu.stat")).ok()?, "usage_usec ")?;
    let waited = fs::read_to_string(folder.join("cpu.pressure")).ok().as_deref().and_then(stalled).unwrap_or(0);
    let io = fs::read_to_string(folder.join("io.stat")).unwrap_or_default();
    Some(Activity { log: length(log), read: Bytes(read_bytes(&io)), processor: Duration::from_micros(used.saturating_add(waited)) })
}

/// Processes of a control group.
pub(crate) fn processes_of_group(group: &str) -> Vec<i32> {
    let list = group_folder(group).and_then(|folder| fs::read_to_string(folder.join("cgroup.procs")).ok()).unwrap_or_default();
    list.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// State, memory and the kernel function of every process and of its threads' states: what tells a hang from a wait.
pub(crate) fn traces(pids: &[i32]) -> Vec<(String, String)> {
    let mut text = String::new();
    for pid in pids.iter().take(MOST) {
        let file = |name: &str| fs::read(format!("/proc/{pid}/{name}")).map(|bytes| shown(&bytes)).unwrap_or_else(|cause| format!("({cause})"));
        text.push_str(&format!("== process {pid}: {}\nwaits in: {}\n{}\n", file("comm"), file("wchan"), file("status")));
        if text.len() > LONGEST {
            break;
        }
    }
    if text.is_empty() {
        return Vec::new();
    }
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    vec![("processes.txt".to_owned(), text), ("meminfo.txt".to_owned(), memory)]
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(8 * 1024)]).trim().chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}

fn length(log: &Path) -> Bytes {
    Bytes(fs::metadata(log).map_or(0, |about| about.len()))
}

fn group_folder(group: &str) -> Option<std::path::PathBuf> {
    let inside = group.strip_prefix('/').filter(|rest| !rest.is_empty() && !rest.split('/').any(|part| part == ".."))?;
    Some(Path::new("/sys/fs/cgroup").join(inside))
}

/// User and system time of a process with those of its children that ended, in ticks. Its name may hold anything, brackets too.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum()
}

/// How long the threads of a process waited for a processor; nothing where the kernel does not count it.
fn waited(pid: i32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().filter_map(Result::ok).take(MOST);
    let texts = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    Duration::from_nanos(texts.filter_map(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok()).sum())
}

/// Microseconds in which something of a group waited for a processor.
fn stalled(pressure: &str) -> Option<u64> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("total=")?.parse().ok())
}

fn after(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// The sum over all devices of an `io.stat`.
fn read_bytes(text: &str) -> u64 {
    text.split_whitespace().filter_map(|word| word.strip_prefix("rbytes=")?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_read_behind_a_name_that_looks_like_figures() {
        let stat = "42 (a) R 1 2) S 1 42 42 0 -1 0 0 0 0 0 7 5 2 1 20 0 1 0 777 0 0";
        assert_eq!(ticks(stat), Some(15));
        assert_eq!(ticks("42 (a) R"), None);
    }

    #[test]
    fn what_this_process_did_only_grows_and_a_foreign_id_tells_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        fs::write(&log, b"abc").unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        let before = of_processes(&[me], &log).unwrap();
        let begin = std::time::Instant::now();
        while begin.elapsed() < Duration::from_millis(60) {
            std::hint::black_box(0);
        }
        let after = of_processes(&[me], &log).unwrap();
        assert!(before.log == Bytes(3) && after.processor > before.processor);
        assert_eq!(of_processes(&[i32::MAX], &log), None);
        assert!(traces(&[me])[0].1.contains("State:"));
    }

    #[test]
    fn a_group_is_read_over_all_devices_and_never_outside_its_folder() {
        assert_eq!(read_bytes("8:0 rbytes=10 wbytes=1\n8:16 rbytes=5 wbytes=0\n"), 15);
        assert_eq!(stalled("some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 total=5\n"), Some(77));
        assert_eq!(after("usage_usec 99\nuser_usec 1\n", "usage_usec "), Some(99));
        for bad in ["", "/", "relative", "/a/../../etc"] {
            assert!(group_folder(bad).is_none(), "{bad}");
        }
    }
}
