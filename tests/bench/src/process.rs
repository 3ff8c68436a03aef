//! What a process and all its children took: processor time and memory, as the kernel counts them.

use std::{collections::HashMap, fs};

/// Processor time in microseconds of a process with all its threads, ended ones included; with its living descendants where they work for
/// it.
///
/// # Errors
/// A sentence when the process is gone.
pub fn cpu_us(pid: u32, with_children: bool) -> Result<u64, String> {
    let tick = ticks_per_second();
    let own = ticks(pid).ok_or_else(|| format!("the process {pid} is gone"))?;
    let children: u64 = if with_children { descendants(pid).into_iter().filter_map(ticks).sum() } else { 0 };
    Ok((own + children) * 1_000_000 / tick)
}

/// Memory in bytes that is in RAM: of the process alone, or with all its descendants.
///
/// # Errors
/// A sentence when the process is gone.
pub fn rss_bytes(pid: u32, with_children: bool) -> Result<u64, String> {
    let of = |pid: u32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:"))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    let own = of(pid).ok_or_else(|| format!("the process {pid} is gone"))?;
    let children = if with_children { descendants(pid).into_iter().filter_map(of).sum() } else { 0 };
    Ok(own + children)
}

/// The machine, in words, and how fast it is: milliseconds of one processor for a fixed sum.
pub fn machine() -> (String, f64) {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")).map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    (format!("{count} x {name}"), speed_ms())
}

/// Least of several, so that neighbours count little.
fn speed_ms() -> f64 {
    let once = || {
        let begin = std::time::Instant::now();
        let mut state = 1u64;
        for n in 0..20_000_000u64 {
            state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n));
        }
        std::hint::black_box(state);
        begin.elapsed().as_secs_f64() * 1000.0
    };
    (0..5).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// How many processes want a processor at this moment, this one left out.
pub fn load() -> f64 {
    fs::read_to_string("/proc/loadavg").ok().and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0.0)
}

/// Share of all processors' time that somebody used between two looks, 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    used: u64,
    all: u64,
}

impl Busy {
    /// A look.
    pub fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields: Vec<u64> = text.lines().next().unwrap_or_default().split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
        let idle: u64 = fields.iter().skip(3).take(2).sum();
        let all: u64 = fields.iter().take(8).sum();
        Self { used: all - idle, all }
    }

    /// The share since then.
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    pub fn since(self) -> f64 {
        let now = Self::now();
        (now.used - self.used) as f64 / (now.all - self.all).max(1) as f64
    }
}

fn ticks_per_second() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().and_then(|n| u64::try_from(n).ok()).unwrap_or(100)
}

/// User and system time of the whole process, threads that ended included.
fn ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = fields(&text)?;
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn parent(pid: u32) -> Option<u32> {
    fields(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?.get(1)?.parse().ok()
}

/// What stands behind the name, which may hold anything.
fn fields(stat: &str) -> Option<Vec<&str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace().collect())
}

/// Children and theirs.
fn descendants(pid: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some(parent) = parent(child)
        {
            children.entry(parent).or_default().push(child);
        }
    }
    let (mut all, mut next) = (Vec::new(), vec![pid]);
    while let Some(pid) = next.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        next.extend(&below);
        all.extend(below);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_moves_no_field() {
        let stat = "7 (a) b) S 3 7 7 0 -1 4194304 1 2 3 4 50 60 7 8";
        assert_eq!(fields(stat).unwrap()[1], "3");
        assert_eq!((fields(stat).unwrap()[11], fields(stat).unwrap()[12]), ("50", "60"));
    }

    #[test]
    fn time_of_threads_and_children_counts() {
        let before = cpu_us(std::process::id(), true).unwrap();
        let spin = || {
            let begin = std::time::Instant::now();
            while begin.elapsed().as_millis() < 120 {
                std::hint::black_box(0);
            }
        };
        std::thread::spawn(spin).join().unwrap();
        assert!(cpu_us(std::process::id(), true).unwrap() - before >= 30_000);
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        assert!(descendants(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(rss_bytes(std::process::id(), false).unwrap() > 500_000);
    }
}
