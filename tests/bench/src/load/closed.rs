//! Closed loop: each connection asks again as soon as it was answered. Gives processor time per request.

use std::{
    sync::Barrier,
    time::{Duration, Instant},
};

use super::{Dialect, Target};
use crate::{bodies::Ask, process, wire::Connection};

/// Connections at a time.
const CONNECTIONS: usize = 16;
/// What a request still causes after its answer (accounts are written twice a second) belongs to it.
const AFTERMATH: Duration = Duration::from_millis(800);

/// What requests cost.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Processor time of the target per request, in microseconds; `None` when it has no process.
    pub cpu_us: Option<f64>,
    /// Requests per second.
    pub rate: f64,
}

/// Sends about `count` requests after a tenth of them unmeasured.
///
/// # Errors
/// A sentence when an answer is wrong or missing.
pub fn closed(target: &Target, dialect: Dialect, ask: Ask, count: usize) -> Result<Cost, String> {
    let each = count.div_ceil(CONNECTIONS).max(1);
    let (warm, start) = (Barrier::new(CONNECTIONS + 1), Barrier::new(CONNECTIONS + 1));
    let one = |conversation: usize| -> Result<(), String> {
        let request = target.request(dialect, Ask { conversation, ..ask });
        let mut connection = Connection::open(target.address);
        let mut turn = || match &mut connection {
            Ok(connection) => target.check(connection.ask_again(&request)?),
            Err(why) => Err(why.clone()),
        };
        let warmed = (0..each / 10 + 1).try_for_each(|_| turn());
        warm.wait();
        start.wait();
        warmed.and_then(|()| (0..each).try_for_each(|_| turn()))
    };
    let took = |pid| process::cpu_us(pid, target.with_children);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|n| scope.spawn(move || one(n))).collect();
        warm.wait();
        std::thread::sleep(AFTERMATH);
        let before = target.pid.map(took).transpose();
        let begin = Instant::now();
        start.wait();
        for thread in threads {
            thread.join().map_err(|_| "a thread of the load generator panicked".to_owned())??;
        }
        let seconds = begin.elapsed().as_secs_f64();
        std::thread::sleep(AFTERMATH);
        let after = target.pid.map(took).transpose()?;
        #[allow(clippy::cast_precision_loss, reason = "times of seconds")]
        let (requests, used) = ((each * CONNECTIONS) as f64, before?.zip(after).map(|(before, after)| after.saturating_sub(before) as f64));
        Ok(Cost { cpu_us: used.map(|used| used / requests), rate: requests / seconds })
    })
}
