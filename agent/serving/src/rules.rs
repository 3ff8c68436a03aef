//! How patient this room is: with loads, with silence, with hangs, and with engines that die again and again.

use std::time::Duration;

/// Limits of the watchdog. The defaults are for real use; tests shorten them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingRules {
    /// A load that does not advance for so long is stopped.
    pub stuck_after: Duration,
    /// An engine that answered before and does not for so long is given up.
    pub silent_after: Duration,
    /// An engine with requests that makes no token and computes nothing for so long is given up.
    pub hang_after: Duration,
    /// Restarts by itself, for each replica; 0: none.
    pub restarts: u32,
    /// A replica that answered for so long without a break has all of them back.
    pub restart_window: Duration,
    /// Pause before the first restart; each further one is four times as long.
    pub restart_pause: Duration,
    /// An engine that could not be stopped is stopped again after so long, until it is gone.
    pub stop_again: Duration,
}

impl Default for ServingRules {
    fn default() -> Self {
        Self {
            stuck_after: Duration::from_secs(600),
            silent_after: Duration::from_secs(30),
            hang_after: Duration::from_secs(120),
            restarts: 3,
            restart_window: Duration::from_secs(600),
            restart_pause: Duration::from_secs(2),
            stop_again: Duration::from_secs(30),
        }
    }
}
