//! The network room over NetworkManager: reads all ports in one call, tries changes under a checkpoint, keeps what was confirmed.
//!
//! A change never touches the profile in use. It adds a second one in memory, after the checkpoint was made; the network service itself
//! takes it away again and activates the old one when the checkpoint's time is up, whatever happened to the agent. Only a confirmation
//! writes the new profile to disk, and then removes the old.

mod back;
mod check;
mod driver;
mod duplicate;
mod observe;
mod plan;
mod profile;
mod proxies;
mod trial;

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use subtle::ConstantTimeEq;
use tokio::sync::{OnceCell, watch};
use warden_domain::{
    Problem, ProblemKind, Secret,
    change::{Changes, Topic},
    clock,
    ids::AccountId,
    network::{Begun, CONFIRM_SECONDS, ChangeRequest, Interface, InterfaceConfig, LastChange, Network, NetworkDocument, NetworkPlan, Pending},
};
use warden_store::{
    Store,
    audit::{self, AuditRow},
    settings,
};

use crate::bus::Bus;
use driver::Driver;
use trial::{Doors, Found, Leftover, TrialRecord};

/// The store's name for the change under trial.
const TRIAL: &str = "network.trial";
/// The store's name for how the last one ended.
const LAST: &str = "network.last";
/// Time for the answer to leave the box before its address changes.
const ANSWER_FIRST: Duration = Duration::from_millis(400);
/// New settings that are not in use by then are undone.
const ACTIVATION: Duration = Duration::from_secs(45);
/// How often a starting agent looks for the network service.
const RETRY: Duration = Duration::from_secs(3);
/// How often it is looked whether the network service still knows of the change.
const STILL_KNOWN: Duration = Duration::from_secs(3);

/// The console's address at an IP address of this box.
pub type ConsoleUrl = Arc<dyn Fn(IpAddr) -> String + Send + Sync>;

/// What the room needs.
pub struct NetworkParts {
    /// The system bus.
    pub bus: Arc<Bus>,
    /// For what must survive.
    pub store: Store,
    /// News for pages.
    pub changes: Changes,
    /// A folder on the file system on which the network service keeps its profiles.
    pub state_dir: PathBuf,
    /// Where the console is at an address.
    pub console_url: ConsoleUrl,
}

/// How far a trial is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The port is taking the settings.
    Applying,
    /// It has them, and waits to be confirmed.
    Waiting,
    /// It is over.
    Over,
}

/// Settings that may be tried.
struct Checked {
    port: observe::Seen,
    plan: NetworkPlan,
    /// Addresses of the ports that do not change.
    others: Vec<IpAddr>,
}

/// One change under trial.
struct Trial {
    interface: String,
    token: String,
    doors: Doors,
    deadline: Instant,
    /// The new profile.
    profile: zbus::OwnedObjectPath,
    /// The one it stands in for.
    old: Option<zbus::OwnedObjectPath>,
    /// Their names for good.
    uuid: String,
    old_uuid: Option<String>,
    checkpoint: zbus::OwnedObjectPath,
    account: AccountId,
    stage: watch::Sender<Stage>,
}

/// The room.
pub struct NetworkRoom {
    driver: Driver,
    store: Store,
    changes: Changes,
    state_dir: PathBuf,
    console_url: ConsoleUrl,
    trial: Mutex<Option<Arc<Trial>>>,
    /// Itself, for the task that follows a trial.
    me: Weak<Self>,
    /// One change, confirmation or undoing at a time.
    turn: tokio::sync::Mutex<()>,
    /// Filled once what an agent before this one left was ended. Nothing begins before: the two would look alike.
    cleared: OnceCell<()>,
}

impl NetworkRoom {
    /// Opens the room and begins to clear up what an agent before this one left. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(parts: NetworkParts) -> Arc<Self> {
        let room = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            driver: Driver::new(parts.bus),
            store: parts.store,
            changes: parts.changes,
            state_dir: parts.state_dir,
            console_url: parts.console_url,
            trial: Mutex::new(None),
            turn: tokio::sync::Mutex::new(()),
            cleared: OnceCell::new(),
        });
        let clearing = room.clone();
        tokio::spawn(async move {
            while let Err(problem) = clearing.cleared().await {
                tracing::debug!(%problem, "the network service is not there yet");
                tokio::time::sleep(RETRY).await;
            }
        });
        room
    }

    fn under_trial(&self) -> Option<Arc<Trial>> {
        let held = self.trial.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        held.clone()
    }

    fn set_trial(&self, trial: Option<Arc<Trial>>) {
        *self.trial.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = trial;
        self.changes.publish(Topic::Network);
    }

    async fn kept<T: serde::de::DeserializeOwned>(&self, name: &'static str) -> Result<Option<T>, Problem> {
        let text = self.store.read(move |db| settings::get(db, name)).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    async fn end(&self, last: &LastChange, account: Option<AccountId>, action: &'static str) -> Result<(), Problem> {
        let text = serde_json::to_string(last).map_err(|cause| Problem::internal(format!("the end of a change cannot be written: {cause}.")))?;
        let (subject, kept) = (last.interface.clone(), last.kept);
        self.store
            .write(move |tx| {
                settings::set(tx, LAST, &text)?;
                settings::remove(tx, TRIAL)?;
                let outcome = if kept { "ok" } else { "undone" };
                audit::insert(tx, &AuditRow { at: clock::now(), account: account.clone(), action, subject: Some(subject.clone()), outcome })
            })
            .await?;
        self.changes.publish(Topic::Network);
        Ok(())
    }

    /// Understands and ends what an agent before this one began, and removes doubles that a power cut left.
    async fn clear_up(&self) -> Result<(), Problem> {
        let objects = self.driver.objects().await?;
        if let Some(record) = self.kept::<TrialRecord>(TRIAL).await? {
            let checkpoint = observe::checkpoints(&objects).into_iter().find(|path| path.as_str() == record.checkpoint);
            let profile = self.driver.find_profile(&objects, &record.uuid).await?;
            let saved = profile.as_ref().is_some_and(|path| observe::saved(&objects, path));
            let (checkpoint_there, profile) = (checkpoint.is_some(), profile.is_some());
            let what = trial::leftover(Found { same_boot: record.boot == boot_id(), checkpoint: checkpoint_there, profile, saved });
            match (what, &checkpoint) {
                (Leftover::Undo, Some(path)) => self.driver.roll_back(path).await?,
                (Leftover::Undo, None) => self.put_back(&record.uuid, None, &record.interface).await?,
                _ => {}
            }
            tracing::info!(interface = record.interface, ?what, "a network change of an agent before this one was ended");
            self.end(&trial::ending(&record, what, clock::now()), None, "network.leftover").await?;
        }
        self.driver.remove_doubles().await
    }

    async fn cleared(&self) -> Result<(), Problem> {
        self.cleared.get_or_try_init(|| self.clear_up()).await.map(drop)
    }

    async fn seen(&self) -> Result<Vec<observe::Seen>, Problem> {
        let objects = self.driver.objects().await?;
        let mut ports = observe::ports(&objects);
        for port in &mut ports {
            port.interface.config = match &port.profile {
                Some(profile) => self.driver.settings(profile).await.ok().as_ref().and_then(profile::read),
                None => None,
            };
        }
        Ok(ports)
    }

    async fn checked(&self, interface: &str, wanted: &InterfaceConfig) -> Result<Checked, Problem> {
        let ports = self.seen().await?;
        let all: Vec<Interface> = ports.iter().map(|p| p.interface.clone()).collect();
        let Some(port) = ports.into_iter().find(|p| p.interface.name == interface) else {
            return Err(
                Problem::new(ProblemKind::NotFound, format!("This box has no wired port {interface:?}.")).hint("GET /api/network lists its ports.")
            );
        };
        if port.state == observe::UNMANAGED {
            return Err(Problem::new(ProblemKind::Conflict, format!("The network service leaves {interface} alone, so it cannot be changed here."))
                .hint("On a development machine tell NetworkManager to manage it; on the appliance report this as a fault."));
        }
        let warnings = check::check(interface, wanted, &all)?;
        let plan = plan::plan(&port.interface, wanted, warnings, &*self.console_url);
        let others = all.iter().filter(|other| other.name != interface).flat_map(|other| other.addresses.iter().map(|a| a.address)).collect();
        Ok(Checked { port, plan, others })
    }

    /// Refuses an address that another machine answers for.
    async fn nobody_has(&self, port: &observe::Seen, wanted: &InterfaceConfig) -> Result<(), Problem> {
        for address in wanted.fixed() {
            let IpAddr::V4(v4) = address else { continue };
            if port.interface.addresses.iter().any(|own| own.address == address) {
                continue;
            }
            if let Some(mac) = duplicate::owner(v4).await {
                return Err(Problem::new(
                    ProblemKind::Conflict,
                    format!("{address} is in use: the machine with the hardware address {mac} answers for it."),
                )
                .hint("Give a free address, or take it from the other machine first.")
                .param("ipv4.address"));
            }
        }
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
    async fn forgotten(&self, trial: &Trial) -> LastChange {
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

    async fn finish(&self, trial: &Trial, kept: bool, sentence: String, action: &'static str) -> LastChange {
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
    async fn keep(&self, trial: &Trial) -> Result<(), Problem> {
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

#[async_trait]
impl Network for NetworkRoom {
    async fn document(&self) -> NetworkDocument {
        // Right after a start the end of an older change may not be written yet; a reader should not miss it.
        let _told_by_the_listing_below = tokio::time::timeout(Duration::from_secs(3), self.cleared()).await;
        let (unavailable, interfaces) = match self.seen().await {
            Ok(ports) => (None, ports.into_iter().map(|p| p.interface).collect::<Vec<_>>()),
            Err(problem) => (Some(problem.full_text()), Vec::new()),
        };
        let pending = self.under_trial().map(|trial| {
            let present = interfaces.iter().filter(|i| i.name == trial.interface).flat_map(|i| i.addresses.iter().map(|a| a.address));
            let mut at = trial.doors.fixed.clone();
            if *trial.stage.borrow() == Stage::Waiting {
                at.extend(present.filter(|ip| !trial.doors.fixed.contains(ip)));
            }
            Pending {
                interface: trial.interface.clone(),
                console_urls: at.into_iter().map(|ip| (self.console_url)(ip)).collect(),
                seconds_left: trial.deadline.saturating_duration_since(Instant::now()).as_secs(),
            }
        });
        NetworkDocument { unavailable, interfaces, pending, last: self.kept(LAST).await.ok().flatten() }
    }

    async fn plan(&self, interface: &str, wanted: &InterfaceConfig) -> Result<NetworkPlan, Problem> {
        Ok(self.checked(interface, wanted).await?.plan)
    }

    async fn change(&self, request: ChangeRequest) -> Result<Begun, Problem> {
        self.begin(request).await
    }

    async fn confirm(&self, token: &str, arrived_on: Option<IpAddr>) -> Result<LastChange, Problem> {
        let late = || {
            Problem::new(
                ProblemKind::NotFound,
                "This confirmation is not valid (any more): it was used, or its time is over and the old settings are back.",
            )
            .hint("Look at the network page and apply the change again.")
        };
        let trial = self.under_trial().ok_or_else(late)?;
        if !bool::from(trial.token.as_bytes().ct_eq(token.as_bytes())) {
            return Err(late());
        }
        // The address may answer a moment before the network service calls it usable.
        let mut stage = trial.stage.subscribe();
        let ready = stage.wait_for(|stage| *stage != Stage::Applying);
        if tokio::time::timeout(Duration::from_secs(15), ready).await.is_err() {
            return Err(Problem::new(ProblemKind::Conflict, "The port is still taking the new settings.").hint("Try again in a few seconds."));
        }
        let _turn = self.turn.lock().await;
        if *trial.stage.borrow() != Stage::Waiting || Instant::now() >= trial.deadline {
            return Err(late());
        }
        if self.lost(&trial).await {
            let last = self.forgotten(&trial).await;
            return Err(Problem::new(ProblemKind::Conflict, last.sentence));
        }
        let ports = self.seen().await?;
        let present: Vec<IpAddr> =
            ports.iter().filter(|p| p.interface.name == trial.interface).flat_map(|p| p.interface.addresses.iter().map(|a| a.address)).collect();
        if !trial.doors.open(arrived_on, &present) {
            let where_to: Vec<String> = trial.doors.fixed.iter().chain(&present).map(|ip| (self.console_url)(*ip)).collect();
            return Err(Problem::new(
                ProblemKind::Conflict,
                "The confirmation did not come in on the new address, so it does not show that the box can be reached there.",
            )
            .hint(format!("Open {} and confirm there.", where_to.first().map_or("the console at its new address", String::as_str))));
        }
        match self.keep(&trial).await {
            Ok(()) => Ok(self.finish(&trial, true, "The change was confirmed from its new address and is kept.".to_owned(), "network.confirm").await),
            Err(problem) => {
                if self.go_back(&trial).await.is_ok() {
                    let sentence = format!("{} The old settings are back.", problem.full_text());
                    self.finish(&trial, false, sentence, "network.confirm").await;
                }
                Err(problem)
            }
        }
    }

    async fn undo(&self) -> Result<LastChange, Problem> {
        let none = || Problem::new(ProblemKind::NotFound, "No network change waits for a confirmation.").hint("There is nothing to undo.");
        let _turn = self.turn.lock().await;
        let trial = self.under_trial().filter(|trial| *trial.stage.borrow() != Stage::Over).ok_or_else(none)?;
        trial.stage.send_replace(Stage::Over);
        let outcome = self.go_back(&trial).await;
        let sentence = match &outcome {
            Ok(()) => "The change was undone; the old settings are back.".to_owned(),
            Err(problem) => format!("{} The old settings come back by themselves when the time for the confirmation is over.", problem.full_text()),
        };
        Ok(self.finish(&trial, false, sentence, "network.undo").await)
    }
}

impl NetworkRoom {
    async fn begin(&self, request: ChangeRequest) -> Result<Begun, Problem> {
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

/// Names this start of the system.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}
