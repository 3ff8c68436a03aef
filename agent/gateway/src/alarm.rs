//! An alarm that rings when something did not happen for some time.
//!
//! Its timer is set anew only when it rings, not with everything that happens: to set one for each piece of a stream costs more than to
//! look at the piece.

use std::{
    pin::{Pin, pin},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

/// See the module.
pub(crate) struct Alarm {
    every: Duration,
    last: Instant,
    timer: Pin<Box<Sleep>>,
}

/// It rang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rang;

impl Alarm {
    /// Rings `every` after it was touched last.
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, last: Instant::now(), timer: Box::pin(tokio::time::sleep(every)) }
    }

    /// It happened.
    pub(crate) fn touch(&mut self) {
        self.last = Instant::now();
    }

    /// Done when it rings, which counts as a touch. Nothing is lost when this is dropped before.
    pub(crate) async fn rings(&mut self) {
        loop {
            self.timer.as_mut().await;
            let (due, now) = (self.last + self.every, Instant::now());
            if due <= now {
                self.last = now;
                self.timer.as_mut().reset(now + self.every);
                return;
            }
            self.timer.as_mut().reset(due);
        }
    }

    /// Does some work, which must be done before it rings, counted from now.
    pub(crate) async fn limit<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Rang> {
        self.touch();
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => Ok(done),
            () = self.rings() => Err(Rang),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_rings_so_long_after_the_last_touch_and_again_after_that() {
        let second = Duration::from_secs(1);
        let (begin, mut alarm) = (Instant::now(), Alarm::new(10 * second));
        for _ in 0..5 {
            assert_eq!(alarm.limit(tokio::time::sleep(9 * second)).await, Ok(()));
        }
        alarm.rings().await;
        assert_eq!(begin.elapsed().as_secs(), 46, "ten seconds after the last work began");
        alarm.rings().await;
        assert_eq!(begin.elapsed().as_secs(), 56);
        assert_eq!(alarm.limit(std::future::pending::<()>()).await, Err(Rang));
        assert_eq!(begin.elapsed().as_secs(), 66);
    }
}
