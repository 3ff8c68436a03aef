//! Finding out where the update stands: at a start of the agent, and again by the clock where that could not be told or written, so that no
//! phase lasts until the next start. What follows is decided in `start`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::OwnedMutexGuard;
use warden_domain::clock;
use warden_trust::Asked;
use warden_update_record::{Attempt, Before, Phase, Record, Verdict};

use crate::fault::Fault;
use crate::host::number;
use crate::install::{target, target_facts};
use crate::room::{UpdateRoom, blocking};
use crate::start::{MOST_INTERRUPTIONS, StartFacts, TargetFacts, Then, at_start, fell_later};
use crate::work::Through;

/// RAUC has so long to say how an install ended; its answers run the boot-slot program. Then it is asked again by the clock.
const ANSWER: Duration = Duration::from_secs(30);

impl UpdateRoom {
    /// Finds out where the update stands after a start, and goes on with it.
    pub(crate) async fn settle(self: &Arc<Self>) -> Result<(), Fault> {
        let turn = self.turn.clone().lock_owned().await;
        self.settle_in(turn).await
    }

    /// The same by the clock: where it did not work, or where RAUC had not said yet how an install ended.
    pub(crate) async fn settle_again(self: &Arc<Self>) {
        let Ok(turn) = self.take_turn() else { return };
        if !self.unsettled.load(Ordering::Relaxed) && self.record().phase() != Phase::Installing {
            return;
        }
        if let Err(fault) = self.settle_in(turn).await {
            tracing::warn!(%fault, "where the update stands could not be settled; it is tried again");
            if self.with(|known| known.trouble.fault.is_none()) {
                self.set_trouble(&fault).await;
            }
        }
    }

    async fn settle_in(self: &Arc<Self>, turn: OwnedMutexGuard<()>) -> Result<(), Fault> {
        let again = self.unsettled.swap(true, Ordering::Relaxed);
        let record = self.record();
        let target = if record.phase() == Phase::Installing { self.after_install().await } else { None };
        let (health, boot) = (self.places.health.clone(), self.places.boot.clone());
        let (verdict, fallback) = blocking(move || {
            let verdict = warden_update_record::read::<Verdict>(&health).unwrap_or_else(|fault| {
                tracing::warn!(%fault, "the health check's verdict cannot be read");
                None
            });
            Ok((verdict, warden_update_record::read(&boot).ok().flatten()))
        })
        .await?;
        let facts = StartFacts {
            running: self.machine.slot,
            boot_id: self.machine.boot_id.clone(),
            counted: self.machine.counted,
            verdict: verdict.clone(),
            fallback,
            target,
            now: clock::now(),
        };
        self.with(|known| known.verdict = verdict);
        let start = at_start(&record, &facts);
        if start.then == Then::TellBad {
            // Before the record says that it is over: a power cut in between must not let the image be taken again by itself.
            self.quarantine_fallen(&start.record).await?;
        }
        if start.record != record {
            self.put(start.record.clone()).await?;
        }
        if let (Record::Confirmed { attempt, .. }, Some(reason)) = (&record, fell_later(&record, &facts)) {
            self.tell_later_fall(attempt, &reason.sentence, facts.now).await?;
        }
        if let Record::Staged { attempt, target_slot, .. } = &start.record {
            self.host.keep_data().await?;
            // What serves is not known yet right after a start; what was written before the install tells more.
            if !self.before_is_of(attempt).await {
                self.write_before(attempt, *target_slot).await?;
            }
        }
        self.unsettled.store(false, Ordering::Relaxed);
        if again || (record.phase() == Phase::Installing && start.record.phase() == Phase::Staged) {
            self.clear_trouble().await;
        }
        match start.then {
            Then::Nothing => {}
            // A new start is a new chance: the schedule takes the transfer up at once.
            Then::Fetch => {
                if self.with(|known| known.trouble.passes) {
                    self.clear_trouble().await;
                }
            }
            Then::Install => {
                self.go_on(turn, Through::Staged)?;
            }
            Then::GaveUp => self.set_trouble(&Fault::CutOff { times: MOST_INTERRUPTIONS + 1 }).await,
            Then::AwaitVerdict => {
                let room = Arc::clone(self);
                tokio::spawn(async move { room.await_verdict().await });
            }
            Then::TellGood => self.tell_good(&start.record).await,
            Then::TellBad => self.tell_bad(&start.record).await,
        }
        Ok(())
    }

    /// What RAUC says about the slot of an install; `None` while it is at work or does not answer.
    pub(crate) async fn after_install(&self) -> Option<TargetFacts> {
        let asking = async {
            let rauc = self.host.rauc().await.ok()?;
            if rauc.busy().await.ok()? {
                return None;
            }
            let (name, _) = target(&rauc.slots().await.ok()?).ok()?;
            target_facts(&rauc, &name).await.ok()
        };
        tokio::time::timeout(ANSWER, asking).await.ok().flatten()
    }

    async fn before_is_of(&self, attempt: &Attempt) -> bool {
        let (folder, transaction) = (self.places.state.clone(), attempt.transaction.clone());
        let found = blocking(move || Ok(warden_update_record::read::<Before>(&folder)?)).await;
        found.ok().flatten().is_some_and(|before| before.transaction == transaction)
    }

    /// A system that had been confirmed fell later: it is not taken again by itself. Told once.
    async fn tell_later_fall(&self, attempt: &Attempt, sentence: &str, at: Timestamp) -> Result<(), Fault> {
        let Ok(digest) = attempt.entry.sha256.parse() else { return Ok(()) };
        if self.with(|known| known.failed.may_try(&digest, &number(&attempt.entry.version), Asked::Automatic)).is_err() {
            return Ok(());
        }
        self.quarantine(attempt, sentence, at).await?;
        self.note("rolled_back", &attempt.entry.version, &self.machine.version, Some(sentence.to_owned())).await;
        Ok(())
    }

    async fn quarantine_fallen(&self, record: &Record) -> Result<(), Fault> {
        let Record::RolledBack { attempt, reason, at, .. } = record else { return Ok(()) };
        self.quarantine(attempt, &reason.sentence, *at).await
    }

    /// The image of this attempt is not taken again by itself.
    pub(crate) async fn quarantine(&self, attempt: &Attempt, sentence: &str, at: Timestamp) -> Result<(), Fault> {
        let Ok(digest) = attempt.entry.sha256.parse() else { return Ok(()) };
        let failed = self.with(|known| known.failed.clone()).with(digest, number(&attempt.entry.version), sentence, at);
        self.store_failed(failed).await
    }
}
