//! Starting a guest on a busy host. Software emulation sometimes loses the first timer of a second processor; the guest's kernel then
//! says so after 21 seconds and never comes up. That is a fault of the emulator, not of what is started: it is switched on again.

use std::path::Path;
use std::time::Duration;

use crate::{BuilderRoot, Guest, Machine, VmError};

/// What a guest's kernel says when the emulator no longer wakes its timers.
const STALL: &str = "rcu_preempt kthread";
/// Power-ons in all.
const TRIES: u32 = 3;

/// A guest that was switched on, and what it said first.
#[derive(Debug)]
pub struct PowerOn {
    /// The running guest.
    pub guest: Guest,
    /// The first group (or the whole) of what was waited for; [`VmError::TimedOut`] or [`VmError::Ended`] when it did not come.
    pub said: Result<String, VmError>,
    /// How many power-ons before this one stalled in the emulator.
    pub stalls: u32,
}

impl Guest {
    /// As [`Guest::start`], then waits until `pattern` shows up on the serial port. A guest whose emulated timers stand still before that
    /// is switched on again, three times in all. `prepare` is called with each guest as soon as it runs (to plug disks in), `stalled`
    /// with each that is given up (to tell, to keep its log).
    ///
    /// # Errors
    /// Those of [`Guest::start`] and of `prepare`.
    #[allow(clippy::too_many_arguments, reason = "what a start is made from")]
    pub fn start_until(
        builder: &BuilderRoot,
        machine: &Machine,
        run_dir: &Path,
        fresh: bool,
        (pattern, timeout): (&str, Duration),
        mut prepare: impl FnMut(&mut Self) -> Result<(), VmError>,
        mut stalled: impl FnMut(&Self),
    ) -> Result<PowerOn, VmError> {
        let mut stalls = 0;
        loop {
            let mut guest = Self::start(builder, machine, run_dir, fresh)?;
            prepare(&mut guest)?;
            let said = guest.wait(&format!("(?:{pattern})|{STALL}"), timeout);
            if !said.as_ref().is_ok_and(|word| word == STALL) {
                return Ok(PowerOn { guest, said, stalls });
            }
            stalls += 1;
            stalled(&guest);
            if stalls == TRIES {
                let (what, seconds) = (format!("/{pattern}/: the emulator's timers stood still {TRIES} times"), guest.age().as_secs());
                let said = Err(VmError::TimedOut { what, seconds, tail: guest.serial().tail() });
                return Ok(PowerOn { guest, said, stalls });
            }
        }
    }
}
