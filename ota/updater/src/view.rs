//! What pages, API and local screen see, and what they may ask for.

use std::time::Duration;

use async_trait::async_trait;
use rauc_client::{BootStatus, SlotState};
use warden_domain::ids::TaskId;
use warden_domain::update::{
    AttemptView, FailedVersion, GateCheck, Offer, Reaches, SlotView, Stick, UpdateFault, UpdatePhase, UpdateSettings, UpdateView, Updates, Upload,
};
use warden_domain::{Problem, ProblemKind, clock, units::Bytes};
use warden_trust::{Accepted, Asked as TrustAsked, Direction, Entry, Kind, Reach, reach};
use warden_update_record::{Asked, CheckOutcome, Origin, Phase, Record};

use crate::additions;
use crate::fault::{Fault, sentence};
use crate::host::number;
use crate::http::channel_address;
use crate::machine::Event;
use crate::offline::Job;
use crate::policy;
use crate::room::{UpdateRoom, blocking, shown};
use crate::uploads::Uploads;
use crate::work::{LOOK, Through, free};

/// The update service has so long to tell of the slots; a page does not wait longer.
const SLOTS_WITHIN: Duration = Duration::from_secs(2);
/// The slots are not asked again so soon.
const SLOTS_KEPT: Duration = Duration::from_secs(60);
/// Where nothing is known of them, they are asked again so soon.
const SLOTS_AGAIN: Duration = Duration::from_secs(3);

#[async_trait]
impl Updates for UpdateRoom {
    async fn view(&self) -> UpdateView {
        let slots = self.slots().await;
        let uploads = self.uploads();
        let uploads = blocking(move || Ok(uploads.list())).await.unwrap_or_default();
        let accepted = self.accepted();
        let settings = self.settings();
        let offers = accepted.as_ref().map(|accepted| self.offers(accepted)).unwrap_or_default();
        let cannot_install = self.host.cannot_install().or_else(|| self.build.as_ref().err().map(Problem::full_text));
        let staleness = self.staleness();
        self.with(|known| UpdateView {
            version: self.machine.version.clone(),
            slots,
            cannot_install,
            next_check: policy::next_check(
                &settings,
                known.channel.asked_at.map(|at| (at, known.channel.fault.is_none())),
                self.started,
                &self.machine.id,
            ),
            settings,
            checked_at: known.channel.asked_at,
            check_fault: known.channel.fault.clone(),
            release: known.channel.release.as_ref().map(|release| release.version),
            stale: staleness.as_ref().map(|refusal| crate::fault::sentence(&refusal.to_string())),
            offers,
            phase: shown(known.record.phase()),
            attempt: known.record.attempt().map(|attempt| AttemptView {
                version: attempt.entry.version.clone(),
                from: attempt.running.version.clone(),
                sha256: attempt.entry.sha256.clone(),
                bytes: Bytes(attempt.entry.bytes),
                origin: match attempt.origin {
                    Origin::Channel => "channel",
                    Origin::Upload => "upload",
                    Origin::Stick => "stick",
                },
                automatic: attempt.asked == Asked::Automatic,
                began_at: attempt.began_at,
            }),
            progress: known.progress,
            task: known.task.clone(),
            fault: known.trouble.fault.clone(),
            went_back: match &known.record {
                Record::RolledBack { reason, at, .. } => Some(UpdateFault { code: reason.code.clone(), sentence: reason.sentence.clone(), at: *at }),
                _ => None,
            },
            gate: gate(known),
            failed: known
                .failed
                .list()
                .map(|(digest, failed)| FailedVersion {
                    version: failed.version.to_string(),
                    sha256: digest.to_string(),
                    reason: failed.reason.clone(),
                    at: failed.at,
                    falls: failed.falls,
                })
                .collect(),
            history: known.history.lines.clone(),
            uploads,
        })
    }

    fn standing(&self) -> (UpdatePhase, Option<String>) {
        self.with(|known| (shown(known.record.phase()), known.record.attempt().map(|attempt| attempt.entry.version.clone())))
    }

    async fn configure(&self, settings: UpdateSettings) -> Result<UpdateSettings, Problem> {
        let channel = settings.channel.trim().to_owned();
        let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let named = channel.len() <= 64
            && channel.bytes().next().is_some_and(letter)
            && channel.bytes().all(|b| letter(b) || matches!(b, b'.' | b'-' | b'_'));
        if !named {
            return Err(Problem::new(ProblemKind::Invalid, "The name of a channel has small letters, digits, dot, dash and underscore, at most 64.")
                .hint("Most publishers name theirs stable and beta.")
                .param("channel"));
        }
        let day = 24 * 60;
        if settings.window.is_some_and(|window| window.from >= day || window.to >= day) {
            return Err(Problem::new(ProblemKind::Invalid, "The window does not lie within a day.").param("window"));
        }
        if settings.rate_limit.is_some_and(|limit| limit.0 < 8 << 10) {
            return Err(Problem::new(ProblemKind::Invalid, "A transfer slower than 8 KiB a second does not end.")
                .hint("Give a higher limit, or none.")
                .param("rate_limit_bytes_per_s"));
        }
        let channel_url = settings.channel_url.as_deref().map(str::trim).filter(|url| !url.is_empty()).map(channel_address).transpose()?;
        let _turn = self.take_turn()?;
        let before = self.settings();
        let settings = UpdateSettings { channel, channel_url, ..settings };
        let (keep, written) = (self.keep.clone(), settings.clone());
        blocking(move || Ok(keep.write(&written)?)).await.map_err(|fault| fault.problem())?;
        self.with(|known| known.settings = settings.clone());
        if before.channel != settings.channel || before.channel_url != settings.channel_url {
            // What another channel said is no offer of this one.
            self.with(|known| known.fresh = None);
            self.store_channel(crate::keep::Channel::default()).await.map_err(|fault| fault.problem())?;
        }
        self.told();
        Ok(settings)
    }

    async fn check(&self) -> Result<TaskId, Problem> {
        let turn = self.take_turn()?;
        if self.settings().channel_url.is_none() {
            return Err(Problem::new(ProblemKind::Conflict, "No address of an update channel is set, so there is nobody to ask.")
                .hint("Put the address into the settings of updates, or use an offline bundle."));
        }
        let this = self.myself().map_err(|fault| fault.problem())?;
        let task = self.tasks.begin("update-check", LOOK, false);
        let id = task.id().clone();
        tokio::spawn(async move {
            task.step("ask");
            let looked = this.look().await;
            this.tidy().await;
            drop(turn);
            match looked {
                Ok(()) => task.done("ask"),
                Err(fault) => task.fail(&fault.problem()),
            }
            this.told();
        });
        Ok(id)
    }

    async fn install(&self, sha256: Option<&str>) -> Result<TaskId, Problem> {
        let turn = self.take_turn()?;
        let known = |fault: Fault| fault.problem();
        let record = self.record();
        let (_, entry) = self.choose(sha256, Asked::Person).map_err(known)?;
        if entry.kind != Kind::Os {
            if additions::is_there(&self.places, &entry) {
                return Err(Problem::new(ProblemKind::Conflict, format!("{} is here already.", sentence(&entry.subject()))));
            }
            return self.add(turn, entry).map_err(known);
        }
        let same = record.attempt().is_some_and(|attempt| attempt.entry.sha256 == entry.sha256.to_string());
        if same && record.phase() == Phase::Staged {
            return Err(Problem::new(ProblemKind::Conflict, "This system is installed and waits for a restart.").hint("Choose Restart now."));
        }
        if same && matches!(record.phase(), Phase::Available | Phase::Downloading | Phase::Verified) {
            self.clear_trouble().await;
            return self.go_on(turn, Through::Staged).map_err(known);
        }
        self.begin(turn, &entry, Origin::Channel, Asked::Person, Through::Staged).await.map_err(known)
    }

    async fn restart(&self) -> Result<(), Problem> {
        self.try_it().await
    }

    async fn cancel(&self) -> Result<(), Problem> {
        let record = self.record();
        if record.phase() == Phase::Trial {
            let _turn = self.take_turn()?;
            return self.end_bad_trial().await;
        }
        if record.phase() == Phase::Installing {
            return Err(
                Problem::new(ProblemKind::Conflict, "The other slot is being written.").hint("Wait for its end; the running system is not touched.")
            );
        }
        let Ok(_turn) = self.take_turn() else {
            self.ask_cancel();
            return Ok(());
        };
        let event = match record.phase() {
            Phase::Available | Phase::Downloading | Phase::Verified => Event::Dropped,
            Phase::Staged => {
                // The slot first: a record that has forgotten it while it still goes first would start it without a trial.
                self.host.other_slot_never().await?;
                Event::TakenBack
            }
            _ => return Err(Problem::new(ProblemKind::Conflict, "There is nothing to cancel.")),
        };
        let attempt = record.attempt().cloned();
        self.step(event).await.map_err(|fault| fault.problem())?;
        self.clear_trouble().await;
        if let Some(attempt) = attempt {
            self.note("cancelled", &attempt.entry.version, &attempt.running.version, None).await;
        }
        Ok(())
    }

    async fn go_back(&self) -> Result<(), Problem> {
        self.back().await
    }

    async fn open_upload(&self, name: &str, bytes: Bytes) -> Result<Upload, Problem> {
        let _one = self.uploads_lock().await;
        let (uploads, name, folder) = (self.uploads(), name.to_owned(), self.places.files.clone());
        let made = blocking(move || Ok(uploads.open(&name, bytes.0, free(&folder)?)?)).await.map_err(|fault| fault.problem())?;
        self.told();
        Ok(made)
    }

    async fn upload(&self, id: &str) -> Result<Upload, Problem> {
        let (uploads, id) = (self.uploads(), id.to_owned());
        blocking(move || Ok(uploads.get(&id)?)).await.map_err(|fault| fault.problem())
    }

    async fn put_upload(&self, id: &str, offset: u64, piece: &[u8]) -> Result<Upload, Problem> {
        let _one = self.uploads_lock().await;
        let (uploads, id, piece) = (self.uploads(), id.to_owned(), piece.to_vec());
        let stands = blocking(move || Ok(uploads.put(&id, offset, &piece)?)).await.map_err(|fault| fault.problem())?;
        self.told();
        Ok(stands)
    }

    async fn drop_upload(&self, id: &str) -> Result<(), Problem> {
        let _one = self.uploads_lock().await;
        let (uploads, id) = (self.uploads(), id.to_owned());
        blocking(move || Ok(uploads.remove(&id)?)).await.map_err(|fault| fault.problem())?;
        self.told();
        Ok(())
    }

    async fn take_upload(&self, id: &str, install: bool) -> Result<TaskId, Problem> {
        let turn = self.free_for_bundle()?;
        let (uploads, own) = (self.uploads(), id.to_owned());
        let path = blocking(move || Ok(uploads.whole(&own)?)).await.map_err(|fault| fault.problem())?;
        self.take_over(turn, Job::Upload { id: id.to_owned(), path }, install).map_err(|fault| fault.problem())
    }

    async fn take_from_stick(&self, stick: Stick, install: bool) -> Result<TaskId, Problem> {
        let turn = self.free_for_bundle()?;
        self.take_over(turn, Job::Stick(stick), install).map_err(|fault| fault.problem())
    }

    async fn before_power(&self) {
        self.about_to_restart().await;
    }

    async fn power_failed(&self) {
        self.stayed_up().await;
    }
}

impl UpdateRoom {
    pub(crate) fn uploads(&self) -> Uploads {
        Uploads::new(self.places.files.join("uploads"))
    }

    async fn uploads_lock(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.uploads.lock().await
    }

    fn free_for_bundle(&self) -> Result<tokio::sync::OwnedMutexGuard<()>, Problem> {
        let turn = self.take_turn()?;
        if self.record().phase() == Phase::Trial {
            return Err(Problem::new(ProblemKind::Conflict, "A new system is being tried.").hint("Wait for the result, then try again."));
        }
        Ok(turn)
    }

    /// The two systems, as RAUC tells of them; asked now and then only, because each answer runs its boot-slot program.
    async fn slots(&self) -> Vec<SlotView> {
        if self.host.cannot_install().is_some() {
            return Vec::new();
        }
        let (asked, kept) = self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        // While RAUC writes it has better things to do.
        let busy = self.record().phase() == Phase::Installing;
        // A service that did not answer may just be starting.
        let lasts = if kept.is_empty() { SLOTS_AGAIN } else { SLOTS_KEPT };
        if asked.is_some_and(|at| at.elapsed() < lasts || busy) {
            return kept;
        }
        let fresh = self.ask_slots().await;
        let slots = if fresh.is_empty() { kept } else { fresh };
        *self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = (Some(std::time::Instant::now()), slots.clone());
        slots
    }

    /// The two system slots, as the update service tells them now; none when it does not answer in time.
    pub(crate) async fn ask_slots(&self) -> Vec<SlotView> {
        let asking = async {
            let rauc = self.host.rauc().await.ok()?;
            let slots = rauc.slots().await.ok()?;
            let primary = rauc.primary().await.ok();
            Some((slots, primary))
        };
        let Some((slots, primary)) = tokio::time::timeout(SLOTS_WITHIN, asking).await.ok().flatten() else { return Vec::new() };
        let rootfs = slots.into_iter().filter(|slot| slot.bootname.is_some());
        rootfs
            .map(|slot| {
                let running = slot.state == SlotState::Booted;
                SlotView {
                    version: if running { Some(self.machine.version.clone()) } else { slot.version.clone() },
                    good: match slot.boot_status {
                        BootStatus::Good => Some(true),
                        BootStatus::Bad => Some(false),
                        BootStatus::Unknown => None,
                    },
                    next: primary.as_ref().map(|primary| *primary == slot.name),
                    slot: slot.bootname.unwrap_or_default(),
                    running,
                }
            })
            .collect()
    }

    fn offers(&self, accepted: &Accepted) -> Vec<Offer> {
        let mut entries: Vec<&Entry> = accepted.release.entries.iter().collect();
        entries.sort_by(|a, b| (a.kind, &a.name, std::cmp::Reverse(a.number())).cmp(&(b.kind, &b.name, std::cmp::Reverse(b.number()))));
        entries.into_iter().map(|entry| self.offered(accepted, entry)).collect()
    }

    fn offered(&self, accepted: &Accepted, entry: &Entry) -> Offer {
        let installed = self.installed();
        let admitted = accepted.admit(&entry.sha256, &installed).map(|(_, direction)| direction);
        let failed = self.with(|known| known.failed.clone());
        let running = entry.kind == Kind::Os && entry.number().is_some_and(|number| number == installed.os);
        let reaches = match reach(&entry.waves, &self.machine.id, &accepted.release.channel, accepted.release.version, clock::now()) {
            Reach::Now => Reaches::Now,
            Reach::At(moment) => Reaches::At(moment),
            Reach::Held => Reaches::Held,
        };
        let failed_before = failed.may_try(&entry.sha256, &number(&entry.version), TrustAsked::Automatic).err();
        Offer {
            kind: entry.kind.name(),
            name: entry.name.clone(),
            version: entry.version.clone(),
            sha256: entry.sha256.to_string(),
            bytes: Bytes(entry.bytes),
            notes: entry.notes.clone(),
            direction: match &admitted {
                Ok(Direction::Newer) => "newer",
                Ok(Direction::Same) => "same",
                Ok(Direction::Older) => "older",
                Ok(Direction::Addition) => "addition",
                Err(_) => "refused",
            },
            reaches,
            refused: admitted.err().map(|refusal| Fault::Refused(refusal).shown()),
            failed_before: failed_before.filter(|_| entry.kind == Kind::Os && !running).map(|refusal| sentence(&refusal.to_string())),
            here: additions::is_there(&self.places, entry),
            installed: running || (entry.kind != Kind::Os && additions::is_there(&self.places, entry)),
        }
    }
}

/// What the health gate saw, while its word is about the attempt that is shown.
fn gate(known: &crate::room::Known) -> Vec<GateCheck> {
    let Some(verdict) = crate::start::verdict_on(&known.record, known.verdict.as_ref()) else { return Vec::new() };
    let check = |check: &warden_update_record::Check| GateCheck {
        code: check.code.clone(),
        outcome: match check.outcome {
            CheckOutcome::Passed => "passed",
            CheckOutcome::Failed => "failed",
            CheckOutcome::NotApplicable => "not_applicable",
        },
        sentence: check.sentence.clone(),
    };
    verdict.checks.iter().map(check).collect()
}
