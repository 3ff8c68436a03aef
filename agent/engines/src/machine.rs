//! Facts of the machine that a command line depends on.

/// The machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// Processors the engine may use.
    pub(crate) cpus: usize,
}

impl Machine {
    /// This machine, as far as this process may use it.
    pub(crate) fn present() -> Self {
        Self { cpus: std::thread::available_parallelism().map_or(1, usize::from) }
    }

    /// Half of the processors: the other half are mostly second threads of the same cores, and the agent needs some too. More than 16
    /// make a small batch slower, not faster.
    pub(crate) fn threads(self) -> usize {
        self.cpus.div_ceil(2).clamp(1, 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_at_least_one_thread() {
        assert_eq!(Machine { cpus: 0 }.threads(), 1);
        assert_eq!(Machine { cpus: 1 }.threads(), 1);
    }
}
