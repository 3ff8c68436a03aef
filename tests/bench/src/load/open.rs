//! Open loop: requests begin on the clock, whether or not earlier ones were answered, and are measured from the moment they were due.

use std::time::{Duration, Instant};

use super::{Dialect, Target};
use crate::{bodies::Ask, stats, wire::Connection};

/// Connections that take turns. One that is late delays only its own next request, and that delay is measured.
const CONNECTIONS: u32 = 32;
/// Requests sent before the measurement.
const WARM: u32 = 20;

/// How long answers took, in milliseconds from when the request was due to the end of its answer.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Half took at most so long.
    pub p50_ms: f64,
    /// 99 of 100 took at most so long.
    pub p99_ms: f64,
}

/// `rate` requests a second for some time.
///
/// # Errors
/// A sentence when an answer is wrong or missing.
pub fn open(target: &Target, ask: Ask, rate: u32, time: Duration) -> Result<Latency, String> {
    let count = rate.saturating_mul(u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
    let begin = Instant::now() + Duration::from_secs(1);
    let one = |place: u32| -> Result<Vec<f64>, String> {
        // Otherwise a sleep ends up to 50 microseconds late.
        let _late_then = nix::sys::prctl::set_timerslack(1);
        let request = target.request(Dialect::Chat, Ask { conversation: place as usize, ..ask });
        let mut connection = Connection::open(target.address)?;
        for _ in 0..WARM {
            target.check(connection.ask_again(&request)?)?;
        }
        let mut took = Vec::with_capacity((count / CONNECTIONS + 1) as usize);
        for n in (place..count).step_by(CONNECTIONS as usize) {
            let due = begin + Duration::from_secs(1) * n / rate;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            target.check(connection.ask_again(&request)?)?;
            took.push(due.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(took)
    };
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|place| scope.spawn(move || one(place))).collect();
        for thread in threads {
            all.extend(thread.join().map_err(|_| "a thread of the load generator panicked".to_owned())??);
        }
        Ok::<_, String>(())
    })?;
    let nothing = || "nothing was measured".to_owned();
    Ok(Latency { p50_ms: stats::percentile(&mut all, 0.5).ok_or_else(nothing)?, p99_ms: stats::percentile(&mut all, 0.99).ok_or_else(nothing)? })
}
