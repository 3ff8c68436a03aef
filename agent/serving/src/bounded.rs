//! Questions to what may hang: a disk that does not answer, a process inside a driver.
//!
//! A question goes on in a task of its own; whoever asked waits for a moment only, and takes the answer later if it comes.

use std::{future::Future, path::Path, time::Duration};

use tokio::{task::JoinHandle, time::timeout};
use warden_domain::{Problem, ProblemKind, model::StateReason};

/// A model's file is looked at for so long at most.
pub(crate) const FILE_LIMIT: Duration = Duration::from_secs(20);
/// What may be tried again after a disk did not answer is tried after this time.
const AGAIN: Duration = Duration::from_secs(10);

/// A question of which at most one is under way.
#[derive(Debug)]
pub(crate) struct Slow<T>(Option<JoinHandle<T>>);

impl<T> Default for Slow<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Send + 'static> Slow<T> {
    /// The answer, if it is there within `patience`. One that was late before is taken when it is there, and not waited for again.
    pub(crate) async fn ask<F: Future<Output = T> + Send + 'static>(&mut self, patience: Duration, question: impl FnOnce() -> F) -> Option<T> {
        let mut asked = match self.0.take() {
            Some(asked) if !asked.is_finished() => {
                self.0 = Some(asked);
                return None;
            }
            Some(asked) => asked,
            None => tokio::spawn(question()),
        };
        match timeout(patience, &mut asked).await {
            Ok(answer) => answer.ok(),
            Err(_) => {
                self.0 = Some(asked);
                None
            }
        }
    }
}

/// Waits for something that reads a model's file.
///
/// # Errors
/// Its own, or `SystemService` when the disk does not answer in time.
pub(crate) async fn of_file<T: Send + 'static>(
    path: &Path,
    limit: Duration,
    reading: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    match timeout(limit, tokio::spawn(reading)).await {
        Ok(Ok(read)) => read,
        Ok(Err(_)) => Err(Problem::internal("Looking at a model's file ended unexpectedly.")),
        Err(_) => Err(Problem::new(
            ProblemKind::SystemService,
            format!("The disk that holds {} did not answer within {} s.", path.display(), limit.as_secs().max(1)),
        )
        .hint("Look at the disk on the page Storage, and attach it again if it is a removable one; then load the model again. Other models are not touched.")
        .retry_after(AGAIN)),
    }
}

/// Work that blocks, waited for only so long; `None` when it takes longer, and goes on alone.
pub(crate) async fn blocking<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    timeout(limit, tokio::task::spawn_blocking(work)).await.ok()?.ok()
}

/// Why a model waits while it is not known which engines are installed.
pub(crate) fn engines_unknown() -> StateReason {
    StateReason {
        code: "engines_unknown".to_owned(),
        message: "The disk that holds the engines does not answer, so nothing can be started from it. The model loads by itself when it does."
            .to_owned(),
        hint: Some("Look at the disk on the page Storage. If it stays so, restart the machine.".to_owned()),
    }
}

/// Why models wait while it is not known which engines run already.
pub(crate) fn running_unknown() -> StateReason {
    StateReason {
        code: "engines_unknown".to_owned(),
        message: "The system does not tell yet which engines run. The model goes on by itself when it does.".to_owned(),
        hint: Some("If it stays so, restart the machine.".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Instant,
    };

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_question_that_hangs_is_asked_once_and_waited_for_once() {
        let (answered, asked) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let mut slow = Slow::default();
        let begin = Instant::now();
        for _ in 0..20 {
            let (answered, asked) = (Arc::clone(&answered), Arc::clone(&asked));
            let answer = slow.ask(Duration::from_millis(50), || async move {
                asked.fetch_add(1, Ordering::SeqCst);
                answered.notified().await;
                7
            });
            assert_eq!(answer.await, None);
        }
        assert!(begin.elapsed() < Duration::from_millis(900), "it was waited for again: {:?}", begin.elapsed());
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        answered.notify_one();
        let late = loop {
            if let Some(late) = slow.ask(Duration::ZERO, || async { 0 }).await {
                break late;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(late, 7, "the late answer counts");
        assert_eq!(slow.ask(Duration::from_secs(5), || async { 8 }).await, Some(8));
    }

    #[tokio::test]
    async fn work_that_hangs_is_not_waited_for() {
        let begin = Instant::now();
        assert_eq!(blocking(Duration::from_millis(20), || std::thread::sleep(Duration::from_secs(1))).await, None);
        assert!(begin.elapsed() < Duration::from_millis(800));
        assert_eq!(blocking(Duration::from_secs(5), || 7).await, Some(7));
    }

    #[tokio::test]
    async fn a_disk_that_hangs_is_named_with_the_way_out() {
        let never = std::future::pending::<Result<(), Problem>>();
        let problem = of_file(Path::new("/media/slow/m.gguf"), Duration::from_millis(20), never).await.unwrap_err();
        assert!(problem.message.contains("/media/slow/m.gguf") && problem.hint.is_some() && problem.retry_after.is_some(), "{problem:?}");
    }
}
