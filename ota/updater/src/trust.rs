//! What the box believes of channels and releases, for how long, and from where it begins.

use jiff::Timestamp;
use warden_domain::{Problem, ProblemKind, clock};
use warden_trust::{Accepted, Clock, Freshness, Refusal, Trusted};
use warden_update_record::FileError;

use crate::fault::Fault;
use crate::host::number;
use crate::keep::Keep;
use crate::room::{UpdateRoom, blocking};

/// How trust begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// With what is remembered, or with the image's root file.
    Usual,
    /// What was remembered is damaged: with the image's root file, and the system that runs as the floor.
    Damaged,
    /// What was remembered cannot be read now: not at all in this run.
    Unreadable,
}

/// What is trusted, and how to begin without it. A damaged file is kept aside; one that cannot be read is not taken for one that is not there.
pub(crate) fn load(keep: &Keep, broken: &mut impl FnMut(FileError)) -> (Option<Trusted>, Beginning) {
    match keep.read() {
        Ok(trusted) => (trusted, Beginning::Usual),
        Err(fault) => {
            let damaged = matches!(fault, FileError::Damaged { .. });
            broken(fault);
            (None, if damaged && keep.put_aside::<Trusted>() { Beginning::Damaged } else { Beginning::Unreadable })
        }
    }
}

impl UpdateRoom {
    /// Believes the image's own root file, or takes over a newer one. After damage the system that runs is the floor.
    pub(crate) async fn begin_trust(&self, beginning: Beginning) {
        let Ok(build) = self.build.clone() else { return };
        if beginning == Beginning::Unreadable {
            // Its fault is shown already. Beginning anew would forget what was withdrawn.
            return;
        }
        let outcome = async {
            let path = self.places.trust.join("root.json");
            let root = blocking(move || std::fs::read(&path).map_err(Fault::io(format!("{} cannot be read", path.display())))).await?;
            let identity = build.identity(&self.settings().channel);
            let trusted = match self.with(|known| known.trusted.clone()) {
                Some(trusted) => trusted.with_builtin(&root, &identity)?,
                None => {
                    let mut trusted = Trusted::begin(&root, &identity, build.build_epoch)?;
                    if beginning == Beginning::Damaged {
                        trusted.os_floor = number(&self.machine.version);
                    }
                    trusted
                }
            };
            self.store_trusted(trusted).await
        };
        if let Err(fault) = outcome.await {
            tracing::error!(%fault, "the root of trust for updates cannot be used");
            self.set_trouble(&fault).await;
        }
    }

    pub(crate) async fn store_trusted(&self, trusted: Trusted) -> Result<(), Fault> {
        let (keep, written) = (self.keep.clone(), trusted.clone());
        blocking(move || Ok(keep.write(&written)?)).await?;
        self.with(|known| known.trusted = Some(trusted));
        Ok(())
    }

    pub(crate) fn trusted(&self) -> Result<Trusted, Fault> {
        self.with(|known| known.trusted.clone()).ok_or_else(|| {
            let problem = Problem::new(ProblemKind::SystemService, "This system carries no usable root file, so that no update can be checked.");
            Fault::Problem(problem.hint("Install a system image that carries one."))
        })
    }

    /// The present moment as trust judges it.
    pub(crate) async fn clock(&self) -> Result<Clock, Fault> {
        let build = self.build.as_ref().map_err(|problem| Fault::Problem(problem.clone()))?;
        Ok(Clock { wall: clock::now(), confirmed: self.host.clock_confirmed().await, build_epoch: build.build_epoch })
    }

    /// The release last believed, weighed against what is trusted now: what was withdrawn since counts.
    pub(crate) fn accepted(&self) -> Option<Accepted> {
        self.with(|known| {
            let (trusted, release, digest) = (known.trusted.clone()?, known.channel.release.clone()?, known.channel.digest?);
            Some(Accepted { trusted, release, release_digest: digest, freshness: known.fresh.unwrap_or(Freshness::Fresh { until: Timestamp::MAX }) })
        })
    }

    /// Whether the channel is alive: a look in this run found it so, and the time it named is not over. Before a look nothing is done by itself.
    pub(crate) fn freshness(&self) -> Result<(), Refusal> {
        match self.with(|known| known.fresh) {
            Some(Freshness::Fresh { .. }) => self.staleness().map_or(Ok(()), Err),
            Some(Freshness::Stale { expires, now }) => Err(Refusal::Stale { expires, now }),
            None => Err(Refusal::Stale { expires: self.started, now: self.started }),
        }
    }

    /// That what the server last said is over. A server that says nothing more does not keep the box from noticing.
    pub(crate) fn staleness(&self) -> Option<Refusal> {
        let (expires, floor) = self.with(|known| (known.channel.fresh_until, known.trusted.as_ref().map(|trusted| trusted.last_time)));
        let (expires, build) = (expires?, self.build.as_ref().ok()?);
        let now = Clock { wall: clock::now(), confirmed: false, build_epoch: build.build_epoch }.latest(floor.unwrap_or(build.build_epoch));
        (expires <= now).then_some(Refusal::Stale { expires, now })
    }
}
