//! How the end of the agent reaches its listeners and connections: no new connections, a last call for those that just came, what is
//! in flight, and the cut.
//!
//! A connection that was accepted a moment before the end has not asked yet. Ending it then would be a refusal, which a restart must
//! never be; so its first request is waited for, shortly, and answered.

use std::time::Duration;

use tokio::sync::watch;

/// How long the first request of a connection is waited for at the end.
pub const LAST_CALL: Duration = Duration::from_millis(500);

/// Held by whoever ends the agent.
#[derive(Debug)]
pub struct Ender {
    stop: watch::Sender<bool>,
    cut: watch::Sender<bool>,
    newcomers: watch::Sender<usize>,
}

/// What listeners and connections see of it; cheap to clone.
#[derive(Clone, Debug)]
pub struct End {
    stop: watch::Receiver<bool>,
    cut: watch::Receiver<bool>,
    newcomers: watch::Sender<usize>,
}

/// A connection that has not asked for anything yet; dropped with its first request, or its end.
#[derive(Debug)]
pub struct Newcomer(watch::Sender<usize>);

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Both sides of one end.
#[must_use]
pub fn ending() -> (Ender, End) {
    let ((stop, stopped), (cut, cut_seen)) = (watch::channel(false), watch::channel(false));
    let newcomers = watch::Sender::new(0);
    (Ender { stop, cut, newcomers: newcomers.clone() }, End { stop: stopped, cut: cut_seen, newcomers })
}

impl Ender {
    /// No connection is accepted from now on; the system keeps the next ones in its queue.
    pub fn stop(&self) {
        let _ = self.stop.send(true);
    }

    /// Waits until every connection that was accepted has asked for something, but not longer than [`LAST_CALL`].
    pub async fn last_call(&self) {
        let mut newcomers = self.newcomers.subscribe();
        let _enough_waited = tokio::time::timeout(LAST_CALL, newcomers.wait_for(|count| *count == 0)).await;
    }

    /// Ends every connection that is still open.
    pub fn cut(&self) {
        let _ = self.cut.send(true);
    }
}

impl End {
    /// The same end for a listener that may be stopped before the agent ends.
    #[must_use]
    pub fn stopped_by(&self, stop: watch::Receiver<bool>) -> Self {
        Self { stop, ..self.clone() }
    }

    /// Resolves when nothing new is accepted any more.
    pub async fn stopped(&mut self) {
        let _the_sender_is_gone_too = self.stop.wait_for(|stop| *stop).await;
    }

    /// Resolves when everything is cut.
    pub async fn cut(&mut self) {
        let _the_sender_is_gone_too = self.cut.wait_for(|cut| *cut).await;
    }

    /// Counts a connection that was just accepted.
    #[must_use]
    pub fn newcomer(&self) -> Newcomer {
        self.newcomers.send_modify(|count| *count += 1);
        Newcomer(self.newcomers.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn the_last_call_ends_with_the_last_newcomer_and_never_waits_for_a_silent_one() {
        let (ender, end) = ending();
        ender.last_call().await;
        let newcomer = end.newcomer();
        let asked = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(30)).await;
            drop(newcomer);
        });
        ender.last_call().await;
        assert!(asked.await.is_ok());
        let silent = end.newcomer();
        let started = Instant::now();
        ender.last_call().await;
        assert!(started.elapsed() >= LAST_CALL && started.elapsed() < LAST_CALL * 20);
        drop(silent);
    }
}
