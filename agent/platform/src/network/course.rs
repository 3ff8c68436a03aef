//! The course of one change under trial: begun, activated, waited for, ended. Everything that a power cut must not confuse is written before
//! what it protects happens.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use tokio::sync::watch;
use warden_domain::{
    Problem, ProblemKind, Secret,
    change::Topic,
    clock,
    ids::AccountId,
    network::{Begun, CONFIRM_SECONDS, ChangeRequest, LastChange},
};
use warden_store::{
    audit::{self, AuditRow},
    settings,
};

use super::{
    Checked, NetworkRoom, TRIAL, boot_id, profile,
    trial::{Doors, TrialRecord},
};

/// Time for the answer to leave the box before its address changes.
const ANSWER_FIRST: Duration = Duration::from_millis(400);
/// New settings that are not in use by then are undone.
const ACTIVATION: Duration = Duration::from_secs(45);
/// How often it is looked whether the network service still knows of the change.
const STILL_KNOWN: Duration = Duration::from_secs(3);

/// How far a trial is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The port is taking the settings.
    Applying,
    /// It has them, and waits to be confirmed.
    Waiting,
    /// It is over.
    Over,
}

/// One change under trial.
pub(super) struct Trial {
    pub(super) interface: String,
    pub(super) token: String,
    pub(super) doors: Doors,
    pub(super) deadline: Instant,
    /// The new profile.
    pub(super) profile: zbus::OwnedObjectPath,
    /// The one it stands in for.
    pub(super) old: Option<zbus::OwnedObjectPath>,
    /// Their names for good.
    pub(super) uuid: String,
    pub(super) old_uuid: Option<String>,
    pub(super) checkpoint: zbus::OwnedObjectPath,
    pub(super) account: AccountId,
    pub(super) stage: watch::Sender<Stage>,
}

impl NetworkRoom {
    /// Begins a trial: checkpoint, record, second profile, activation. The answer comes before the address changes.
    pub(super) async fn begin(&self, request: ChangeRequest) -> Result<Begun, Problem> {
        let seconds = request.window.as_secs();
        if !CONFIRM_SECONDS.contains(&seconds) {
            return Err(Problem::new(
                ProblemKind::Invalid,
                format!("{seconds} s is no time for a confirmation; {} to {} are allowed.", CONFIRM_SECONDS.start(), CONFIRM_SECONDS.end()),
            )
            .hint("60 suits most networks.")
            .param("confirm"));
        }
        let _turn = self.turn.lock().await;
        self.cleared().await?;
        if let Some(trial) = self.under_trial() {
            return Err(Problem::new(ProblemKind::Conflict, format!("A change of {} already waits for its confirmation.", trial.interface))
                .hint("Confirm or undo it first; without a word it is undone by itself."));
        }
        let Checked { port, plan, others } = self.checked(&request.interface, &request.wanted).await?;
        if plan.changes.is_empty() {
            return Err(Problem::new(ProblemKind::Conflict, format!("{} already has these settings; nothing would change.", request.interface)));
        }
        self.nobody_has(&port, &request.wanted).await?;
        let uuid = uuid()?;
        let base = match &port.profile {
            Some(profile) => Some(self.driver.settings(profile).await?),
            None => None,
        };
        let settings = profile::build(base.as_ref(), &request.interface, &uuid, &request.wanted);
        let checkpoint = self.driver.checkpoint(&port.device, request.window).await?;
        let deadline = Instant::now() + request.window;
        let record = TrialRecord {
            interface: request.interface.clone(),
            checkpoint: checkpoint.to_string(),
            uuid: uuid.clone(),
            boot: boot_id(),
            begun: clock::now(),
        };
        let added = match self.remember(&record, &request.account).await {
            Ok(()) => self.driver.add(&settings).await,
            Err(problem) => Err(problem),
        };
        let new = match added {
            Ok(new) => new,
            Err(problem) => {
                let _nothing_changed_yet = self.driver.roll_back(&checkpoint).await;
                let _or_understood_at_the_next_start = self.store.write(|tx| settings::remove(tx, TRIAL)).await;
                return Err(problem);
            }
        };
        let token = token()?;
        let trial = Arc::new(Trial {
            interface: request.interface,
            token: token.clone(),
            doors: Doors::new(request.wanted.fixed(), &others, request.arrived_on),
            deadline,
            profile: new,
            old: port.profile.clone(),
            uuid,
            old_uuid: base.as_ref().map(|settings| profile::Identity::of(settings).uuid),
            checkpoint,
            account: request.account,
            stage: watch::Sender::new(Stage::Applying),
        });
        self.set_trial(Some(trial.clone()));
        if let Some(room) = self.me.upgrade() {
            tokio::spawn(room.run(trial, port.device));
        }
        Ok(Begun { plan, token: Secret::new(token), window: request.window })
    }

    async fn remember(&self, record: &TrialRecord, account: &AccountId) -> Result<(), Problem> {
        let text = serde_json::to_string(record).map_err(|cause| Problem::internal(format!("the trial cannot be recorded: {cause}.")))?;
        let (account, subject) = (account.clone(), record.interface.clone());
        self.store
            .write(move |tx| {
                settings::set(tx, TRIAL, &text)?;
                let row = AuditRow {
                    at: clock::now(),
                    account: Some(account.clone()),
                    action: "network.change",
                    subject: Some(subject.clone()),
                    outcome: "ok",
                };
                audit::insert(tx, &row)
            })
            .await?;
        Ok(())
    }

    /// Activates, waits for the outcome, then for the end of the window.
    async fn run(self: Arc<Self>, trial: Arc<Trial>, device: zbus::OwnedObjectPath) {
        tokio::time::sleep(ANSWER_FIRST).await;
        let limit = ACTIVATION.min(trial.deadline.saturating_duration_since(Instant::now()));
        let outcome = self.driver.activate(&trial.profile, &device, limit).await;
        if *trial.stage.borrow() == Stage::Over {
            return;
        }
        if let Err(problem) = outcome {
            self.give_up(&trial, &problem).await;
            return;
        }
        trial.stage.send_replace(Stage::Waiting);
        self.changes.publish(Topic::Network);
        let mut stage = trial.stage.subscribe();
        while Instant::now() < trial.deadline {
            let until = trial.deadline.min(Instant::now() + STILL_KNOWN);
            let over = stage.wait_for(|stage| *stage == Stage::Over);
            if tokio::time::timeout_at(until.into(), over).await.is_ok() {
                return;
            }
            if Instant::now() < trial.deadline && self.lost(&trial).await {
                break;
            }
        }
        let _turn = self.turn.lock().await;
        if *trial.stage.borrow() == Stage::Over {
            return;
        }
        if Instant::now() < trial.deadline {
            // Nobody would undo it at the end of its time.
            self.forgotten(&trial).await;
            return;
        }
        // The network service undoes it by itself; the agent only waits to be able to say so.
        let gone = self.driver.wait_checkpoint_gone(&trial.checkpoint, Duration::from_secs(15)).await;
        let back = gone && self.put_back(&trial.uuid, trial.old_uuid.as_deref(), &trial.interface).await.is_ok();
        let sentence = if back {
            "Nobody confirmed the change from its new address in time, so the old settings are back.".to_owned()
        } else {
            "Nobody confirmed the change in time, and the network service has not said that the old settings are back. Look at the addresses."
                .to_owned()
        };
        self.finish(&trial, false, sentence, "network.silence").await;
    }

    /// Undoes what the port could not use; as long as it takes, since a network service that broke off may be on its way back.
    async fn give_up(&self, trial: &Trial, problem: &Problem) {
        loop {
            let turn = self.turn.lock().await;
            if *trial.stage.borrow() == Stage::Over {
                return;
            }
            let sentence = match self.go_back(trial).await {
                Ok(()) => Some(format!("{} The old settings are back.", problem.full_text())),
                Err(cause) => {
                    tracing::warn!(%cause, "a network change that failed could not be undone at once");
                    let late = Instant::now() >= trial.deadline;
                    late.then(|| format!("{} Whether the old settings are back is not known. Look at the addresses.", problem.full_text()))
                }
            };
            if let Some(sentence) = sentence {
                self.finish(trial, false, sentence, "network.failed").await;
                return;
            }
            drop(turn);
            tokio::time::sleep(STILL_KNOWN).await;
        }
    }

    /// Ends a trial that the network service knows nothing of any more: it was restarted.
    pub(super) async fn forgotten(&self, trial: &Trial) -> LastChange {
        let sentence = match self.put_back(&trial.uuid, trial.old_uuid.as_deref(), &trial.interface).await {
            Ok(()) => "The network service was restarted before the change was confirmed, so the old settings are back. Apply it again.".to_owned(),
            Err(problem) => format!(
                "The network service was restarted before the change was confirmed, and the old settings could not be brought back: {} \
                 A restart of the box does it.",
                problem.full_text()
            ),
        };
        self.finish(trial, false, sentence, "network.lost").await
    }

    pub(super) async fn finish(&self, trial: &Trial, kept: bool, sentence: String, action: &'static str) -> LastChange {
        trial.stage.send_replace(Stage::Over);
        let last = LastChange { interface: trial.interface.clone(), at: clock::now(), kept, sentence };
        if let Err(problem) = self.end(&last, Some(trial.account.clone()), action).await {
            tracing::error!(%problem, "the end of a network change could not be recorded");
        }
        self.set_trial(None);
        tracing::info!(interface = last.interface, kept, sentence = last.sentence, "a network change ended");
        last
    }

    /// New profile to disk and safe there, then the checkpoint away, then the old profile: whenever the power goes, one of the two whole
    /// settings is in use at the next start.
    pub(super) async fn keep(&self, trial: &Trial) -> Result<(), Problem> {
        self.driver.save(&trial.profile).await?;
        self.sync().await;
        self.driver.destroy_checkpoint(&trial.checkpoint).await?;
        if let Some(old) = &trial.old {
            self.driver.delete_if_ours(old).await;
            self.sync().await;
        }
        Ok(())
    }

    /// The network service does not wait for the disk when it writes a new profile.
    async fn sync(&self) {
        let folder = self.state_dir.clone();
        let done = tokio::task::spawn_blocking(move || {
            let folder = std::fs::File::open(folder)?;
            nix::unistd::syncfs(&folder).map_err(std::io::Error::from)
        });
        match done.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "the state partition could not be synced after a network change"),
            Err(error) => tracing::error!(%error, "syncing the state partition broke off"),
        }
    }
}

fn random<const N: usize>() -> Result<[u8; N], Problem> {
    let mut bytes = [0u8; N];
    getrandom::fill(&mut bytes).map_err(|cause| Problem::internal(format!("no random bytes: {cause}.")))?;
    Ok(bytes)
}

fn token() -> Result<String, Problem> {
    Ok(URL_SAFE_NO_PAD.encode(random::<24>()?))
}

/// A random UUID (version 4).
fn uuid() -> Result<String, Problem> {
    let mut b = random::<16>()?;
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Ok(format!("{}-{}-{}-{}-{}", hex(&b[..4]), hex(&b[4..6]), hex(&b[6..8]), hex(&b[8..10]), hex(&b[10..])))
}
