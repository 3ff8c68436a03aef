//! The one task that runs the checks: at a slow beat all of them, at news those that listen to it. It owns the memory; whoever wants a
//! change of it sends a wish. Beginnings and ends go to the store together with the alerts that tell of them, in one transaction.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use tokio::{
    sync::{
        Notify,
        broadcast::{self, error::RecvError},
        mpsc, oneshot,
    },
    time::{sleep, sleep_until},
};
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    clock,
    ids::{AccountId, IssueId},
    issue::{Check, Dismissal, Issue, IssueBoard},
    units::Millis,
};
use warden_store::{
    Store, StoreError,
    audit::{self, AuditRow},
    issues,
};

use super::memory::{Event, Look, Memory};
use crate::alerts::message::{self, Teller};

/// All checks look this often.
const BEAT: Duration = Duration::from_secs(15);
/// News within this time make one round.
const GATHER: Duration = Duration::from_millis(250);

/// A wish, with where to answer.
pub(crate) enum Wish {
    /// Look now.
    CheckNow { done: oneshot::Sender<()> },
    /// Note, or take back, that somebody knows.
    Dismiss { by: AccountId, id: IssueId, dismissal: Option<Dismissal>, reply: oneshot::Sender<Result<Issue, Problem>> },
}

/// What the task works with.
pub(crate) struct Evaluator {
    pub(crate) store: Store,
    pub(crate) changes: Changes,
    pub(crate) checks: Vec<Arc<dyn Check>>,
    pub(crate) board: Arc<ArcSwap<IssueBoard>>,
    pub(crate) teller: Teller,
    /// Wakes the sender of alerts.
    pub(crate) outbox: Arc<Notify>,
    pub(crate) memory: Memory,
    /// Beginnings and ends that the store did not take yet (a full disk): tried again at the next round.
    pub(crate) unwritten: Vec<Event>,
    /// From here the steady clock runs.
    pub(crate) begun: Instant,
}

impl Evaluator {
    /// Until nobody can send wishes any more.
    pub(crate) async fn run(mut self, mut wishes: mpsc::Receiver<Wish>) {
        let mut news = self.changes.subscribe();
        self.round(None).await;
        let mut next = tokio::time::Instant::now() + self.pause();
        loop {
            let mut done = None;
            let topics = tokio::select! {
                wish = wishes.recv() => match wish {
                    None => return,
                    Some(Wish::CheckNow { done: reply }) => { done = Some(reply); None }
                    Some(Wish::Dismiss { by, id, dismissal, reply }) => {
                        let _ = reply.send(self.dismiss(&by, &id, dismissal).await);
                        continue;
                    }
                },
                heard = news.recv() => match heard {
                    Err(RecvError::Closed) => return,
                    Err(RecvError::Lagged(_)) => None,
                    Ok(topic) if self.nobody_listens(topic) => continue,
                    Ok(topic) => {
                        sleep(GATHER).await;
                        Some(gathered(&mut news, topic))
                    }
                },
                () = sleep_until(next) => None,
            };
            self.round(topics.as_deref()).await;
            if topics.is_none() {
                next = tokio::time::Instant::now() + self.pause();
            } else {
                next = next.min(tokio::time::Instant::now() + self.pause());
            }
            if let Some(done) = done {
                let _ = done.send(());
            }
        }
    }

    /// Until the next beat, or until an issue in the making would open.
    fn pause(&self) -> Duration {
        let opening = self.memory.next_opening(self.begun.elapsed()).map_or(BEAT, |left| left.max(Duration::from_secs(1)));
        BEAT.min(opening)
    }

    fn nobody_listens(&self, topic: Topic) -> bool {
        !self.checks.iter().any(|check| check.listens().contains(&topic))
    }

    /// One round: all checks, or those that listen to one of the topics.
    async fn round(&mut self, topics: Option<&[Topic]>) {
        let begun = Instant::now();
        let mut looks = Vec::new();
        for check in &self.checks {
            if topics.is_none_or(|topics| check.listens().iter().any(|topic| topics.contains(topic))) {
                looks.push(Look { codes: check.codes(), looked: check.look().await });
            }
        }
        let now = clock::now();
        let events = self.memory.take(looks, now, self.begun.elapsed());
        for event in &events {
            match event {
                Event::Opened(issue) => {
                    tracing::warn!(code = %issue.finding.code, subject = %issue.finding.subject, "issue: {}", issue.finding.said);
                }
                Event::Resolved(issue) => tracing::info!(code = %issue.finding.code, subject = %issue.finding.subject, "issue is over"),
            }
        }
        self.unwritten.extend(events);
        self.write().await;
        let took = Millis(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
        self.show(topics.is_none().then_some((now, took)));
    }

    /// Writes what is not written yet. An issue the store refuses is still shown; it is told of once it can be kept.
    async fn write(&mut self) {
        if self.unwritten.is_empty() {
            return;
        }
        let (events, teller) = (self.unwritten.clone(), self.teller.clone());
        let written = self.store.write(move |tx| {
            for event in &events {
                match event {
                    Event::Opened(issue) if issues::insert(tx, issue)? => message::tell(tx, &teller, event)?,
                    Event::Resolved(issue) if issues::resolve(tx, issue, issue.resolved_at.unwrap_or(issue.last_seen))? => {
                        message::tell(tx, &teller, event)?;
                    }
                    _ => {}
                }
            }
            Ok(())
        });
        match written.await {
            Ok(()) => {
                self.unwritten.clear();
                self.outbox.notify_one();
            }
            Err(error) => {
                tracing::error!(%error, "issues could not be written; they are shown, and written later");
                // Bounded: with a full disk for weeks only the newest are kept for later.
                let surplus = self.unwritten.len().saturating_sub(200);
                self.unwritten.drain(..surplus);
            }
        }
    }

    /// Swaps the board, and tells when something people see changed.
    fn show(&self, round: Option<(jiff::Timestamp, Millis)>) {
        let before = self.board.load_full();
        let (checked_at, took) = round.map_or((before.checked_at, before.took), |(at, took)| (Some(at), took));
        let board = IssueBoard { open: self.memory.open(), unchecked: self.memory.unchecked(), checked_at, took };
        let same = |a: &Issue, b: &Issue| a.id == b.id && a.finding == b.finding && a.dismissed == b.dismissed;
        let changed = before.checked_at.is_none()
            || before.unchecked != board.unchecked
            || before.open.len() != board.open.len()
            || !before.open.iter().zip(&board.open).all(|(a, b)| same(a, b));
        self.board.store(Arc::new(board));
        if changed {
            self.changes.publish(Topic::Issues);
        }
    }

    async fn dismiss(&mut self, by: &AccountId, id: &IssueId, dismissal: Option<Dismissal>) -> Result<Issue, Problem> {
        let subject = self.memory.get(id).map(|issue| format!("{} {}", issue.finding.code, issue.finding.subject)).ok_or_else(|| not_open(id))?;
        let (key, row, action) = (id.clone(), dismissal.clone(), if dismissal.is_some() { "issue.dismiss" } else { "issue.recall" });
        let by = by.clone();
        self.write().await;
        let written = self.store.write(move |tx| {
            if !issues::dismiss(tx, &key, row.as_ref())? {
                return Err(StoreError::from(not_open(&key)));
            }
            audit::insert(tx, &AuditRow { at: clock::now(), account: Some(by), action, subject: Some(subject), outcome: "ok" })
        });
        written.await?;
        let issue = self.memory.dismiss(id, dismissal).ok_or_else(|| not_open(id))?;
        self.show(None);
        Ok(issue)
    }
}

/// All topics that are on the board by now.
fn gathered(news: &mut broadcast::Receiver<Topic>, first: Topic) -> Vec<Topic> {
    let mut topics = vec![first];
    while let Ok(topic) = news.try_recv() {
        topics.push(topic);
    }
    topics
}

/// The refusal for an issue that is not open.
pub(crate) fn not_open(id: &IssueId) -> Problem {
    let shown: String = id.as_str().chars().filter(|c| !c.is_control()).take(60).collect();
    Problem::new(ProblemKind::NotFound, format!("There is no open issue with the id {shown}.")).hint("It may be over by now; look at the list again.")
}
