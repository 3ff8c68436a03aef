//! Asking the channel, and bringing an image from chosen to staged. Each turn goes on from the phase the record names, so that a turn after a
//! restart is the same as one in a single go.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::OwnedMutexGuard;
use warden_domain::ids::TaskId;
use warden_domain::tasks::Task;
use warden_domain::{Problem, ProblemKind, clock};
use warden_trust::{Accepted, Digest, Entry, Freshness, Kind, Metadata, RELEASE_MAX, ROOT_CHAIN_MAX, ROOT_MAX, TIMESTAMP_MAX, TimestampDoc, Way};
use warden_update_record::{Asked, Attempt, EntryRef, Origin, Phase, Running, TransactionId};

use crate::download::{Rules, download};
use crate::fault::Fault;
use crate::host::number;
use crate::http::below;
use crate::keep::Channel;
use crate::machine::Event;
use crate::preflight::{self, Room};
use crate::room::{UpdateRoom, believed, blocking};

/// Steps of a look at the channel.
pub(crate) const LOOK: &[(&str, &str)] = &[("ask", "Ask the update server")];
/// Steps of an update.
pub(crate) const UPDATE: &[(&str, &str)] = &[
    ("fetch", "Fetch the image"),
    ("check", "Check the image, and that the running system was found healthy"),
    ("install", "Write it to the other system slot"),
    ("stage", "Make it the next one to start"),
];
/// Steps of an engine pack or a model.
pub(crate) const ADDITION: &[(&str, &str)] = &[("fetch", "Fetch the file"), ("add", "Put it in its place")];

/// How a turn ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A system lies here, checked.
    Fetched,
    /// A system is the next one to start.
    Staged,
    /// There was no system to do anything with.
    Nothing,
    /// Something else is in its place.
    Added,
}

/// How far a turn goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Through {
    /// Until the image lies here, checked.
    Verified,
    /// Until it is the next one to start.
    Staged,
}

/// How long one look may take in all. It holds the turn, and nothing else can be done meanwhile.
const LOOKS_WITHIN: std::time::Duration = std::time::Duration::from_secs(120);

impl UpdateRoom {
    /// Asks the channel and remembers what it says.
    pub(crate) async fn look(&self) -> Result<(), Fault> {
        let outcome = match tokio::time::timeout(LOOKS_WITHIN, self.ask()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Fault::BrokeOff { got: 0, cause: format!("the update server took longer than {} s", LOOKS_WITHIN.as_secs()) }),
        };
        if let Err(fault) = &outcome {
            tracing::warn!(%fault, "the update channel could not be asked");
            // In memory first: a full disk is no reason to ask all the time.
            let channel = self.with(|known| {
                known.channel = Channel { asked_at: Some(clock::now()), fault: Some(fault.shown()), ..known.channel.clone() };
                known.channel.clone()
            });
            self.told();
            self.store_channel(channel).await?;
        }
        outcome
    }

    async fn ask(&self) -> Result<(), Fault> {
        let address = self.settings().channel_url.ok_or_else(|| Fault::Problem(no_channel()))?;
        let (mut trusted, identity, clock) = (self.trusted()?, self.identity()?, self.clock().await?);
        let missing = |path: &str| Fault::Status { status: 404, path: path.to_owned() };
        let file = |name: String| below(&address, &format!("metadata/{name}"));

        // Each is judged as it comes: a server that has an answer to everything is left at its first one.
        for _ in 0..ROOT_CHAIN_MAX {
            let next = file(format!("root.{}.json", trusted.root.version + 1))?;
            let Some(root) = self.client.small(&next, ROOT_MAX).await? else { break };
            let before = trusted.root.version;
            trusted = trusted.walk(&[root], &identity)?;
            if trusted.root.version == before {
                break;
            }
        }
        let uri = file("timestamp.json".to_owned())?;
        let timestamp = self.client.small(&uri, TIMESTAMP_MAX).await?.ok_or_else(|| missing(uri.path()))?;
        let pin = TimestampDoc::read(&timestamp)?.0.release;
        let limit = usize::try_from(pin.bytes).unwrap_or(RELEASE_MAX).min(RELEASE_MAX);
        let uri = file(format!("release.{}.json", pin.version))?;
        let release = self.client.small(&uri, limit).await?.ok_or_else(|| missing(uri.path()))?;

        let accepted = trusted.accept(&Metadata { roots: Vec::new(), timestamp, release }, Way::OverTheAir, &identity, &clock)?;
        self.store_trusted(accepted.trusted.clone()).await?;
        let fresh_until = match accepted.freshness {
            Freshness::Fresh { until } => until,
            Freshness::Stale { expires, .. } => expires,
        };
        let channel = self.with(|known| known.channel.clone());
        let seen = believed(&channel, &accepted.release, accepted.release_digest, true);
        self.with(|known| known.fresh = Some(accepted.freshness));
        self.store_channel(Channel { asked_at: Some(clock.wall), fault: None, fresh_until: Some(fresh_until), ..seen }).await
    }

    /// The entry that a call names, weighed against this box; the newest system without a name.
    pub(crate) fn choose(&self, sha256: Option<&str>, asked: Asked) -> Result<(Accepted, Entry), Fault> {
        let accepted = self.accepted().ok_or_else(|| Fault::Problem(nothing_known()))?;
        let installed = self.installed();
        let entry = match sha256 {
            Some(text) => {
                let digest: Digest = text.parse().map_err(|_| {
                    Fault::Problem(Problem::new(ProblemKind::Invalid, format!("{text:?} is no SHA-256 of 64 lower-case hex digits.")).param("sha256"))
                })?;
                accepted.admit(&digest, &installed)?.0.clone()
            }
            None => accepted.best_os(&installed).ok_or_else(|| Fault::Problem(nothing_known()))?.0.clone(),
        };
        if entry.kind == Kind::Driver {
            let problem = Problem::new(ProblemKind::Invalid, "A GPU driver comes with the system and is not installed by itself.");
            return Err(problem.hint("Install the system that carries it.").into());
        }
        if asked == Asked::Automatic {
            self.freshness()?;
            let failed = self.with(|known| known.failed.clone());
            failed.may_try(&entry.sha256, &number(&entry.version), warden_trust::Asked::Automatic)?;
        }
        Ok((accepted, entry))
    }

    /// Begins with a system: the record says which, then the work goes on in the background.
    pub(crate) async fn begin(
        &self,
        turn: OwnedMutexGuard<()>,
        entry: &Entry,
        origin: Origin,
        asked: Asked,
        through: Through,
    ) -> Result<TaskId, Fault> {
        self.chosen(entry, origin, asked).await?;
        self.go_on(turn, through)
    }

    pub(crate) async fn chosen(&self, entry: &Entry, origin: Origin, asked: Asked) -> Result<(), Fault> {
        self.free_for_another()?;
        let transaction =
            TransactionId::random().map_err(|cause| Fault::Problem(Problem::internal(format!("The system gives no random bytes: {cause}."))))?;
        let attempt = Attempt {
            transaction,
            entry: EntryRef { name: entry.name.clone(), version: entry.version.clone(), sha256: entry.sha256.to_string(), bytes: entry.bytes },
            running: Running { slot: self.machine.slot, version: self.machine.version.clone() },
            origin,
            asked,
            began_at: clock::now(),
            interruptions: 0,
        };
        self.step(Event::Chosen(attempt)).await?;
        self.clear_trouble().await;
        Ok(())
    }

    /// Whether another system may be chosen, or why not: a slot that goes first at the next start must not be forgotten.
    fn free_for_another(&self) -> Result<(), Problem> {
        let (words, hint) = match self.record().phase() {
            Phase::Installing => ("The other slot is being written.", "Wait for its end, then choose again."),
            Phase::Staged => ("A new system waits for a restart.", "Restart into it, or cancel it first."),
            Phase::Trial => ("A new system is being tried.", "Wait for the result, then choose again."),
            _ => return Ok(()),
        };
        Err(Problem::new(ProblemKind::Conflict, words).hint(hint))
    }

    /// Goes on from where the record stands, in the background.
    pub(crate) fn go_on(&self, turn: OwnedMutexGuard<()>, through: Through) -> Result<TaskId, Fault> {
        let this = self.myself()?;
        let task = self.tasks.begin("update", UPDATE, true);
        let id = task.id().clone();
        self.with(|known| known.task = Some(id.clone()));
        tokio::spawn(async move {
            let cancel = this.fresh_cancel(Some(&task));
            let outcome = this.advance(&task, &cancel, through).await;
            this.close(&task, turn, outcome).await;
        });
        Ok(id)
    }

    /// Tells of a fault that touches no system.
    pub(crate) async fn aside(&self, outcome: Result<End, Fault>) -> Result<End, Fault> {
        match &outcome {
            Ok(_) => self.clear_trouble().await,
            Err(Fault::Cancelled) => {}
            Err(fault) => {
                tracing::warn!(%fault, code = fault.code(), "what was to be added was not");
                self.set_trouble(fault).await;
            }
        }
        outcome
    }

    /// The end of a turn: what it leaves behind, then the turn itself, and last the end of its task, so that whoever waited for that finds the
    /// rest done.
    pub(crate) async fn close(&self, task: &Task, turn: OwnedMutexGuard<()>, outcome: Result<End, Fault>) {
        match &outcome {
            Ok(_) => self.clear_trouble().await,
            Err(fault) => self.ended(fault).await,
        }
        self.finish(task, turn, outcome);
    }

    pub(crate) fn finish(&self, task: &Task, turn: OwnedMutexGuard<()>, outcome: Result<End, Fault>) {
        self.set_progress(None);
        drop(turn);
        match outcome {
            Ok(End::Staged) => task.done("stage"),
            Ok(End::Fetched) => ["check", "install", "stage"].iter().for_each(|step| task.skip(step)),
            Ok(End::Nothing) => ["fetch", "check", "install", "stage"].iter().for_each(|step| task.skip(step)),
            Ok(End::Added) => task.done("add"),
            Err(fault) => task.fail(&fault.problem()),
        }
        self.told();
    }

    pub(crate) fn myself(&self) -> Result<Arc<Self>, Fault> {
        self.this.upgrade().ok_or_else(|| Fault::Problem(Problem::new(ProblemKind::ShuttingDown, "The agent is stopping.")))
    }

    /// From the present phase to the end of the turn.
    pub(crate) async fn advance(self: &Arc<Self>, task: &Task, cancel: &std::sync::atomic::AtomicBool, through: Through) -> Result<End, Fault> {
        if matches!(self.record().phase(), Phase::Available | Phase::Downloading) {
            self.fetch(task, cancel).await?;
        } else {
            task.skip("fetch");
        }
        if through == Through::Verified || self.host.cannot_install().is_some() {
            return Ok(End::Fetched);
        }
        if self.record().phase() == Phase::Verified {
            self.write_slot(task, cancel).await?;
        }
        Ok(End::Staged)
    }

    async fn fetch(self: &Arc<Self>, task: &Task, cancel: &std::sync::atomic::AtomicBool) -> Result<(), Fault> {
        task.step("fetch");
        let (_, entry) = self.entry_at_work()?;
        self.step(Event::Fetching).await?;
        self.bring(task, &entry, cancel).await?;
        self.step(Event::Checked).await?;
        self.set_progress(None);
        self.clear_trouble().await;
        task.done("fetch");
        Ok(())
    }

    /// Fetches one target into its place among the checked ones.
    pub(crate) async fn bring(self: &Arc<Self>, task: &Task, entry: &Entry, cancel: &std::sync::atomic::AtomicBool) -> Result<(), Fault> {
        let folder = self.targets();
        let (there, wanted) = (self.target(&entry.sha256), entry.clone());
        let found = folder.clone();
        let (whole, room) = blocking(move || {
            let whole = std::fs::File::open(&there)
                .is_ok_and(|file| warden_trust::PartCheck::resume(&wanted, file).is_ok_and(|check| check.finish().is_ok()));
            let there = std::fs::metadata(crate::writer::unfinished(&found, &wanted)).map_or(0, |about| about.len());
            Ok((whole, Room { free: free(&found)?, there }))
        })
        .await?;
        if whole {
            return Ok(());
        }
        preflight::room(entry, room)?;
        let settings = self.settings();
        let address = settings.channel_url.ok_or_else(|| Fault::Problem(no_channel()))?;
        let uri = below(&address, &format!("targets/{}", entry.sha256))?;
        let rules = Rules { limit: settings.rate_limit.map(|limit| limit.0), ..self.rules };
        let teller = self.teller(task.id().clone(), "fetch", entry.bytes);
        download(&self.client, &uri, &folder, entry, rules, cancel, &|done| teller.moved(done)).await
    }

    /// The entry of the attempt, if it may still be installed.
    pub(crate) fn entry_at_work(&self) -> Result<(Accepted, Entry), Fault> {
        let record = self.record();
        let attempt = record.attempt().ok_or_else(|| Fault::Problem(nothing_known()))?;
        let accepted = self.accepted().ok_or_else(|| Fault::Problem(nothing_known()))?;
        let digest: Digest = attempt.entry.sha256.parse().map_err(|why: String| Fault::Problem(Problem::internal(why)))?;
        let entry = accepted.admit(&digest, &self.installed())?.0.clone();
        Ok((accepted, entry))
    }

    /// What a turn leaves behind when it ended: for the page, for the next turn, for the history.
    async fn ended(&self, fault: &Fault) {
        tracing::warn!(%fault, code = fault.code(), "an update ended early");
        let record = self.record();
        let Some(attempt) = record.attempt().cloned() else { return self.set_trouble(fault).await };
        let (version, from) = (attempt.entry.version.clone(), attempt.running.version.clone());
        if matches!(fault, Fault::Cancelled) {
            if self.step(Event::Dropped).await.is_ok() {
                self.note("cancelled", &version, &from, None).await;
            }
            return;
        }
        self.set_trouble(fault).await;
        let waits = fault.passes() || self.stays(fault, record.phase());
        if waits {
            return;
        }
        if self.step(Event::Dropped).await.is_ok() {
            let sentence = crate::fault::sentence(&fault.to_string());
            // A version is left alone from now on only for what its image did, never for what a network or a release says of it.
            if fault.blames_image()
                && let Ok(digest) = attempt.entry.sha256.parse()
            {
                let failed = self.with(|known| known.failed.clone()).with(digest, number(&version), &sentence, clock::now());
                if let Err(fault) = self.store_failed(failed).await {
                    tracing::error!(%fault, "the list of failed systems cannot be written");
                }
                let file = self.target(&digest);
                let _gone_already = tokio::fs::remove_file(file).await;
            }
            self.note("failed", &version, &from, Some(sentence)).await;
        }
    }

    /// Faults that say nothing against the image: it stays here, and a person or the next turn goes on with it.
    fn stays(&self, fault: &Fault, phase: Phase) -> bool {
        use rauc_client::RaucError as R;
        let of_the_box = matches!(fault, Fault::Problem(_) | Fault::Io { .. } | Fault::Record(_) | Fault::CutOff { .. } | Fault::NoTarget)
            || matches!(fault, Fault::Rauc(R::Bus { .. } | R::Busy | R::Gone | R::Stalled(_) | R::Denied { .. } | R::Unexpected { .. }));
        of_the_box && phase != Phase::Trial
    }

    /// Whether a broken-off transfer should rest: when it broke off.
    pub(crate) fn broke_off(&self) -> Option<Timestamp> {
        self.with(|known| known.trouble.fault.as_ref().map(|fault| fault.at))
    }

    /// Fetches what is no system and puts it in its place, in the background.
    pub(crate) fn add(&self, turn: OwnedMutexGuard<()>, entry: Entry) -> Result<TaskId, Fault> {
        let this = self.myself()?;
        let task = self.tasks.begin("update-addition", ADDITION, true);
        let id = task.id().clone();
        self.with(|known| known.task = Some(id.clone()));
        tokio::spawn(async move {
            let cancel = this.fresh_cancel(Some(&task));
            let outcome = async {
                task.step("fetch");
                this.bring(&task, &entry, &cancel).await?;
                task.done("fetch");
                task.step("add");
                this.place_fetched(&entry, &cancel).await?;
                Ok(End::Added)
            }
            .await;
            // What fails here says nothing about the system that is at work or waits.
            let outcome = this.aside(outcome).await;
            this.finish(&task, turn, outcome);
        });
        Ok(id)
    }
}

/// Free bytes for us where a folder lies.
pub(crate) fn free(folder: &std::path::Path) -> Result<u64, Fault> {
    let about = nix::sys::statvfs::statvfs(folder)
        .map_err(|cause| Fault::io(format!("{} cannot be asked for its free room", folder.display()))(cause.into()))?;
    Ok(about.blocks_available().saturating_mul(about.fragment_size()))
}

fn no_channel() -> Problem {
    Problem::new(ProblemKind::Conflict, "No address of an update channel is set, so there is nobody to ask.")
        .hint("Put the address into the settings of updates, or use an offline bundle.")
}

fn nothing_known() -> Problem {
    Problem::new(ProblemKind::NotFound, "There is no release that offers this box anything.")
        .hint("Ask the channel first (POST /api/updates/check), or use an offline bundle.")
}
