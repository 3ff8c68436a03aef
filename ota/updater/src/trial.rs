//! Around the restart into a new system: what is written before it, the wait for the health gate, and the way back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use warden_domain::{Problem, ProblemKind, clock};
use warden_update_record::{Attempt, Before, Outcome, Phase, Record, Slot, Standing, Verdict, standing};

use crate::fault::Fault;
use crate::host::number;
use crate::machine::Event;
use crate::preflight;
use crate::room::{UpdateRoom, blocking};
use crate::start::verdict_on;

/// How often the gate's word is looked for.
const LOOK: Duration = Duration::from_secs(2);
/// A gate that can go back restarts the machine within this time of its word.
const LEAVES_WITHIN: SignedDuration = SignedDuration::from_secs(120);
/// How long requests may end before a restart that somebody asked for.
const QUIET: Duration = Duration::from_secs(30);

impl UpdateRoom {
    pub(crate) async fn await_verdict(self: Arc<Self>) {
        loop {
            let record = self.record();
            if record.phase() != Phase::Trial {
                return;
            }
            let health = self.places.health.clone();
            let verdict = blocking(move || Ok(warden_update_record::read::<Verdict>(&health)?)).await.ok().flatten();
            if self.with(|known| std::mem::replace(&mut known.verdict, verdict.clone()) != verdict) {
                // A word of the gate is followed by a mark of the slot.
                self.forget_slots();
                self.told();
            }
            if verdict_on(&record, verdict.as_ref()).is_some_and(|v| v.outcome == Outcome::Good) {
                let _turn = self.turn.clone().lock_owned().await;
                match self.step(Event::FoundGood { at: clock::now() }).await {
                    Ok(record) => self.tell_good(&record).await,
                    Err(fault) => tracing::error!(%fault, "the end of the trial cannot be noted; it is tried again"),
                }
            }
            // A bad verdict is followed by the gate's own restart; there is nothing to do here.
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(crate) async fn tell_good(&self, record: &Record) {
        let Some(attempt) = record.attempt() else { return };
        let failed = self.with(|known| known.failed.clone()).confirmed(&number(&attempt.entry.version));
        if let Err(fault) = self.store_failed(failed).await {
            tracing::error!(%fault, "the list of failed systems cannot be written");
        }
        self.clear_trouble().await;
        self.note("confirmed", &attempt.entry.version, &attempt.running.version, None).await;
        self.host.confirmed().await;
    }

    pub(crate) async fn tell_bad(&self, record: &Record) {
        let Record::RolledBack { attempt, reason, .. } = record else { return };
        self.note("rolled_back", &attempt.entry.version, &attempt.running.version, Some(reason.sentence.clone())).await;
    }

    /// Everything that is on the medium before the machine restarts into a trial, the record last.
    async fn leave(&self) -> Result<(), Fault> {
        if let Record::Staged { attempt, target_slot, .. } = self.record() {
            self.keep_way_back(&attempt, target_slot).await?;
        }
        self.step(Event::Restarting { boot_id: self.machine.boot_id.clone() }).await.map(drop)
    }

    /// What a fall-back opens again, and what the gate of the new system compares with, on the medium.
    pub(crate) async fn keep_way_back(&self, attempt: &Attempt, target_slot: Slot) -> Result<(), Fault> {
        self.host.keep_data().await?;
        self.write_before(attempt, target_slot).await
    }

    /// Writes down how the box is, for the gate of the new system.
    pub(crate) async fn write_before(&self, attempt: &Attempt, target_slot: Slot) -> Result<(), Fault> {
        let Some(slot) = self.machine.slot else { return Ok(()) };
        let facts = self.host.before().await;
        let before = Before {
            transaction: attempt.transaction.clone(),
            slot,
            version: self.machine.version.clone(),
            target_slot,
            target_version: attempt.entry.version.clone(),
            management_addresses: facts.management_addresses,
            console_port: facts.console_port,
            data_uuid: facts.data_uuid,
            served_models: facts.served_models,
            gpu_count: facts.gpu_count,
            gpu_driver: facts.gpu_driver,
            at: Some(clock::now()),
        };
        let keep = self.keep.clone();
        blocking(move || Ok(keep.write_before(&before)?)).await
    }

    /// Restarts into the staged system.
    pub(crate) async fn try_it(&self) -> Result<(), Problem> {
        let turn = self.take_turn()?;
        if self.record().phase() != Phase::Staged {
            return Err(Problem::new(ProblemKind::Conflict, "No new system waits for a restart.").hint("Install one first."));
        }
        preflight::restart(&self.work_of_others())?;
        self.quiet().await;
        self.leave().await.map_err(|fault| fault.problem())?;
        let restarted = self.host.restart().await;
        if restarted.is_err() {
            self.not_restarted().await;
        }
        drop(turn);
        restarted
    }

    /// Takes back what was written down for a restart that did not happen. What cannot be written now is settled later.
    async fn not_restarted(&self) {
        if standing(&self.record(), self.machine.slot, &self.machine.boot_id) != Standing::Asked {
            return;
        }
        if let Err(fault) = self.step(Event::NotRestarted).await {
            tracing::error!(%fault, "that the machine was not restarted cannot be noted; it is tried again");
            self.unsettled.store(true, Ordering::Relaxed);
        }
    }

    /// The restart by another door did not happen.
    pub(crate) async fn stayed_up(&self) {
        let _turn = tokio::time::timeout(LOOK, self.turn.clone().lock_owned()).await.ok();
        self.not_restarted().await;
    }

    /// Ends a trial that the health gate found bad where the box cannot go back: the system stays as it is, and another one may be installed.
    /// With the turn held.
    pub(crate) async fn end_bad_trial(&self) -> Result<(), Problem> {
        let record = self.record();
        let verdict = self.with(|known| verdict_on(&record, known.verdict.as_ref()).cloned());
        let judged = verdict.filter(|v| v.outcome == Outcome::Bad && (v.boot_id == self.machine.boot_id || !self.machine.counted));
        let (Some(verdict), Some(attempt), true) = (judged, record.attempt(), record.target_slot() == self.machine.slot) else {
            return Err(
                Problem::new(ProblemKind::Conflict, "The new system is being tried.").hint("Wait for its end; the other system is not touched.")
            );
        };
        let now = clock::now();
        if now >= verdict.at && now.duration_since(verdict.at) < LEAVES_WITHIN {
            return Err(Problem::new(ProblemKind::Conflict, "The new system was found bad, and the box goes back by itself.")
                .hint("If it still runs after two minutes, cancel again."));
        }
        let sentence = verdict.reason.map_or_else(|| "The health check found the new system bad.".to_owned(), |reason| reason.sentence);
        // First the list: a cut in between must not let the image be taken again by itself.
        let noted = async {
            self.quarantine(attempt, &sentence, now).await?;
            self.step(Event::GivenUp).await
        };
        noted.await.map_err(|fault| fault.problem())?;
        self.note("failed", &attempt.entry.version, &attempt.running.version, Some(sentence)).await;
        Ok(())
    }

    /// Somebody restarts the machine by another door: what is staged is tried then.
    pub(crate) async fn about_to_restart(&self) {
        if self.record().phase() != Phase::Staged {
            return;
        }
        // Something long may have the turn, such as the transfer of a model; a restart does not wait for it.
        let _turn = tokio::time::timeout(LOOK, self.turn.clone().lock_owned()).await.ok();
        if let Err(fault) = self.leave().await {
            tracing::error!(%fault, "the trial at the next start cannot be written down");
        }
    }

    /// Makes the other system the next one, and restarts.
    pub(crate) async fn back(&self) -> Result<(), Problem> {
        let _turn = self.take_turn()?;
        if let Some(why) = self.host.cannot_install() {
            return Err(Problem::new(ProblemKind::SystemService, why));
        }
        let record = self.record();
        let (words, hint) = match record.phase() {
            Phase::Trial => ("The new system is still being checked.", "Wait for the result: if it is bad, the box goes back by itself."),
            // The other slot holds the new system; started by this door it would not be checked.
            Phase::Staged => ("The other system is the new one, which waits for a restart.", "Choose Restart now; going back is possible after it."),
            Phase::Installing => ("The other slot is being written.", "Wait for its end, then try again."),
            _ => ("", ""),
        };
        if !words.is_empty() {
            return Err(Problem::new(ProblemKind::Conflict, words).hint(hint));
        }
        let floor = self.with(|known| known.trusted.as_ref().map(|trusted| trusted.os_floor.clone()));
        if let Some(floor) = floor {
            let other = self.ask_slots().await.into_iter().find(|slot| !slot.running).and_then(|slot| slot.version);
            may_run(other.as_deref(), &floor)?;
        }
        preflight::restart(&self.work_of_others())?;
        self.quiet().await;
        let version = self.machine.version.clone();
        let sentence = "Somebody chose to go back to the other system.";
        let running = record.attempt().filter(|attempt| attempt.entry.version == version);
        let digest = running.and_then(|attempt| attempt.entry.sha256.parse().ok()).unwrap_or_else(|| warden_trust::Digest::of(version.as_bytes()));
        let before = self.with(|known| known.failed.clone());
        // First the list: a cut in between must not let the other system take this version again by itself.
        let failed = before.clone().with(digest, number(&version), sentence, clock::now());
        self.store_failed(failed).await.map_err(|fault| fault.problem())?;
        if let Err(problem) = self.host.other_slot_next().await {
            if let Err(fault) = self.store_failed(before).await {
                tracing::error!(%fault, "the list of failed systems names this version although it still runs");
            }
            return Err(problem);
        }
        self.step(Event::Dropped).await.map_err(|fault| fault.problem())?;
        self.note("went_back", &version, &version, None).await;
        self.host.restart().await
    }

    /// Waits until nobody is being answered, but not for ever.
    async fn quiet(&self) {
        let begun = Instant::now();
        while self.host.in_flight() > 0 && begun.elapsed() < QUIET {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Kinds of work that a restart would break off.
    fn work_of_others(&self) -> Vec<String> {
        let running = self.tasks.list().into_iter().filter(|(_, steps)| !steps.over() && !steps.kind.starts_with("update"));
        running.map(|(_, steps)| steps.kind).collect()
    }
}

/// Whether a system of this version may still run here. One whose version nobody knows, as the installer wrote it, may.
fn may_run(version: Option<&str>, floor: &warden_trust::Version) -> Result<(), Problem> {
    match version.filter(|version| number(version) < *floor) {
        None => Ok(()),
        Some(version) => {
            let text = format!("The other system is version {version}, and {} is the oldest that may still run here.", floor.as_str());
            Err(Problem::new(ProblemKind::Conflict, text).hint("Its publisher withdrew it. Install a newer system instead."))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_goes_back_below_the_floor() {
        let floor = "1.4.0".parse().unwrap();
        assert!(may_run(Some("1.3.9"), &floor).unwrap_err().to_string().contains("1.3.9"));
        assert!(may_run(Some("1.4.0"), &floor).is_ok());
        assert!(may_run(None, &floor).is_ok());
    }
}
