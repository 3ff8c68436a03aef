//! Clients that leave at any moment: with half a request sent, before the answer, at its beginning, in its middle, at its end.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde::Serialize;

use super::{Dialect, Target};
use crate::{
    bodies::{Answer, Ask, Size},
    wire::Connection,
};

/// Clients at a time.
const CLIENTS: usize = 16;

/// When clients left.
#[derive(Debug, Default, Serialize)]
pub struct Left {
    /// At once, or while they waited.
    pub before: usize,
    /// Within the answer.
    pub within: usize,
    /// After it.
    pub after: usize,
}

/// That many clients, by chance with a seed.
///
/// # Errors
/// A sentence when a client that stays is not answered.
pub fn cancel(target: &Target, dialects: &[Dialect], count: usize, seed: u64) -> Result<Left, String> {
    let left: [AtomicUsize; 3] = Default::default();
    let one = |client: usize| -> Result<(), String> {
        let mut dice = Dice(seed.wrapping_add(client as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for n in (client..count).step_by(CLIENTS) {
            let streamed = dice.below(4) > 0;
            let dialect = dialects[usize::try_from(dice.below(dialects.len() as u64)).unwrap_or(0)];
            let answer = Answer { events: 6, pause: Some(Duration::from_millis(1 + dice.below(4))) };
            let size = if dice.below(50) == 0 { Size::Large } else { Size::Small };
            let request = target.request(dialect, Ask { size, streamed, answer, conversation: n % 200 });
            let mut connection = Connection::open(target.address)?;
            connection.send(&request)?;
            let moment = match dice.below(5) {
                0 => 0,
                1 => {
                    std::thread::sleep(Duration::from_micros(dice.below(3_000)));
                    0
                }
                2 | 3 if streamed => {
                    connection.begun(Duration::from_secs(10))?;
                    std::thread::sleep(Duration::from_micros(dice.below(20_000)));
                    1
                }
                _ => {
                    target.check(connection.rest()?)?;
                    2
                }
            };
            left[moment].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || one(client))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread of the load generator panicked".to_owned())?)
    })?;
    let [before, within, after] = left.map(AtomicUsize::into_inner);
    Ok(Left { before, within, after })
}

/// Chance that is the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}
