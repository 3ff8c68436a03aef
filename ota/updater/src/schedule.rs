//! The clock of the room: asks the channel when it is time, and does what the policy says, whenever nobody else has the turn.

use std::sync::Arc;
use std::time::Duration;

use warden_domain::{ProblemKind, clock};
use warden_trust::{Asked as TrustAsked, reach};
use warden_update_record::{Asked, Origin, Phase};

use crate::fault::Fault;
use crate::host::number;
use crate::machine::Event;
use crate::policy::{self, Act, OfferFacts, Situation};
use crate::room::{UpdateRoom, blocking};
use crate::work::Through;

/// How often it looks.
const TICK: Duration = Duration::from_secs(20);

impl UpdateRoom {
    /// Begins to work: finds out where the update stands, then follows the clock until the agent ends.
    pub fn start(self: &Arc<Self>) {
        let room = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(fault) = room.settle().await {
                tracing::error!(%fault, "the update before this start could not be settled");
                room.set_trouble(&fault).await;
            }
            let mut tick = tokio::time::interval(TICK);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                room.turn_of_the_clock().await;
            }
        });
    }

    /// One look of the clock. Whatever goes wrong is told where it went wrong; the next look comes anyway.
    pub async fn turn_of_the_clock(self: &Arc<Self>) {
        self.settle_again().await;
        let settings = self.settings();
        let last = self.with(|known| known.channel.asked_at.map(|at| (at, known.channel.fault.is_none())));
        if policy::check_due(&settings, last, self.started, &self.machine.id, clock::now())
            && let Ok(_turn) = self.take_turn()
        {
            // Its fault is kept with the channel and shown from there.
            let _told_elsewhere = self.look().await;
            self.tidy().await;
        }
        if let Some(act) = self.due() {
            self.act(act).await;
        }
    }

    fn due(&self) -> Option<Act> {
        let offer = self.offer_facts();
        let (settings, record) = (self.settings(), self.record());
        let (fault, passes) = self.with(|known| (known.trouble.fault.clone(), known.trouble.passes));
        let situation = Situation {
            settings: &settings,
            phase: record.phase(),
            asked: record.attempt().map(|attempt| attempt.asked),
            offer: offer.as_ref(),
            broke_off: self.broke_off(),
            gave_up: fault.is_some() && !passes,
            now: clock::now(),
        };
        match policy::act(&situation) {
            Act::Wait(_) => None,
            Act::Install | Act::Restart if self.host.cannot_install().is_some() => None,
            act => Some(act),
        }
    }

    /// Drops what waits and is no longer offered, and removes files that no release lists any more. With the turn held.
    pub(crate) async fn tidy(&self) {
        let Some(accepted) = self.accepted() else { return };
        let record = self.record();
        let waits = matches!(record.phase(), Phase::Available | Phase::Downloading | Phase::Verified);
        let listed = |sha256: &str| sha256.parse().is_ok_and(|digest| accepted.release.entry(&digest).is_some());
        if let Some(attempt) = record.attempt().filter(|attempt| waits && !listed(&attempt.entry.sha256))
            && self.step(Event::Dropped).await.is_ok()
        {
            self.clear_trouble().await;
            let sentence = "A newer release took its place.".to_owned();
            self.note("cancelled", &attempt.entry.version, &attempt.running.version, Some(sentence)).await;
        }
        let kept: Vec<String> = accepted.release.entries.iter().map(|entry| entry.sha256.to_string()).collect();
        let folder = self.targets();
        let swept = blocking(move || {
            for file in std::fs::read_dir(&folder).map_err(Fault::io("the fetched files cannot be listed"))?.flatten() {
                let name = file.file_name().to_string_lossy().trim_start_matches('.').to_owned();
                if !kept.iter().any(|digest| name.starts_with(digest.as_str())) {
                    std::fs::remove_file(file.path()).map_err(Fault::io("a fetched file cannot be removed"))?;
                }
            }
            Ok(())
        });
        if let Err(fault) = swept.await {
            tracing::warn!(%fault, "old downloads were not removed");
        }
    }

    /// The newest system of the release, as the policy weighs it.
    fn offer_facts(&self) -> Option<OfferFacts> {
        let accepted = self.accepted()?;
        let installed = self.installed();
        let (entry, direction) = accepted.best_os(&installed)?;
        let failed = self.with(|known| known.failed.clone());
        Some(OfferFacts {
            direction,
            reach: reach(&entry.waves, &self.machine.id, &accepted.release.channel, accepted.release.version, clock::now()),
            fresh: self.freshness(),
            quarantine: failed.may_try(&entry.sha256, &number(&entry.version), TrustAsked::Automatic),
        })
    }

    async fn act(self: &Arc<Self>, act: Act) {
        let Ok(turn) = self.take_turn() else { return };
        let through = if self.settings().automatic == warden_domain::update::Automatic::Install { Through::Staged } else { Through::Verified };
        let by_person = self.record().attempt().is_some_and(|attempt| attempt.asked == Asked::Person);
        let outcome = match act {
            Act::Wait(_) => return,
            Act::Begin => match self.choose(None, Asked::Automatic) {
                Ok((_, entry)) => self.begin(turn, &entry, Origin::Channel, Asked::Automatic, through).await.map(drop),
                Err(fault) => Err(fault),
            },
            // A person who said "install" meant all of it, however often the line breaks.
            Act::Fetch => self.go_on(turn, if by_person { Through::Staged } else { through }).map(drop),
            Act::Install => self.go_on(turn, Through::Staged).map(drop),
            Act::Restart => {
                drop(turn);
                self.try_it().await.map_err(Into::into)
            }
        };
        if let Err(fault) = outcome {
            tracing::warn!(%fault, ?act, phase = self.record().phase().name(), "the box did not go on with its update by itself");
            // Something else is at work on the box, a disk or an import: the next look of the clock tries again.
            let passes = act == Act::Restart && matches!(&fault, Fault::Problem(problem) if problem.kind == ProblemKind::Conflict);
            if self.record().phase() != Phase::Idle && !passes {
                self.set_trouble(&fault).await;
            }
        }
    }
}
