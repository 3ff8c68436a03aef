//! Facts of the machine that a command line depends on.

/// The machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// Processors the engine may use.
    pub(crate) cpus: usize,
    /// Its memory in bytes; `None` when the system does not tell.
    pub(crate) memory: Option<u64>,
}

const GIB: u64 = 1 << 30;

impl Machine {
    /// This machine, as far as this process may use it.
    pub(crate) fn present() -> Self {
        let told = std::fs::read_to_string("/proc/meminfo").ok();
        Self { cpus: std::thread::available_parallelism().map_or(1, usize::from), memory: told.as_deref().and_then(total_memory) }
    }

    /// The most memory that one engine may take, in bytes: all but what the agent and the system need. Files that an engine maps count, and
    /// are given back before it is ended for them.
    pub(crate) fn engine_memory(self) -> Option<u64> {
        let all = self.memory?;
        Some(all.saturating_sub(GIB.max(all / 16)).max(all / 2))
    }

    /// Half of the processors: the other half are mostly second threads of the same cores, and the agent needs some too. More than 16
    /// make a small batch slower, not faster.
    pub(crate) fn threads(self) -> usize {
        self.cpus.div_ceil(2).clamp(1, 16)
    }
}

/// `MemTotal:       16307172 kB` -> bytes.
fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_never_gets_all_memory_and_never_no_limit_where_it_is_known() {
        let with = |gib: u64| Machine { cpus: 1, memory: Some(gib * GIB) }.engine_memory().unwrap();
        assert_eq!((with(1) * 2, with(2), with(16), with(256)), (GIB, GIB, 15 * GIB, 240 * GIB));
        assert_eq!(Machine { cpus: 1, memory: None }.engine_memory(), None);
        assert_eq!(total_memory("MemTotal:       16307172 kB\nMemFree: 1 kB\n"), Some(16_307_172 * 1024));
        assert_eq!(total_memory("MemTotal: 0 kB"), None);
        assert!(Machine::present().engine_memory().is_some());
    }

    #[test]
    fn there_is_at_least_one_thread() {
        assert_eq!(Machine { cpus: 0, memory: None }.threads(), 1);
        assert_eq!(Machine { cpus: 1, memory: None }.threads(), 1);
    }
}
