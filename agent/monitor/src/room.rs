//! The room as others see it: the ports `Issues` and `Alerts`.

use std::{net::IpAddr, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use tokio::sync::{Notify, mpsc, oneshot};
use warden_domain::{
    Problem, ProblemKind, Secret,
    alert::{AlertConfig, AlertState, Alerts, NewAlertConfig},
    change::{Changes, Topic},
    clock,
    engine::Engines,
    front::Front,
    ids::{AccountId, DeliveryId, IssueId},
    issue::{Check, Dismissal, Fix, Issue, IssueBoard, Issues},
    model::Registry,
    replica::Serving,
    time::Time,
};
use warden_store::{
    Store,
    audit::{self, AuditRow},
    issues,
};

use crate::{
    alerts::{
        message::{self, Teller},
        sender::Sender,
        settings, target,
    },
    facts::units::{SystemUnits, Units},
    issues::{
        checks::{self, Appliance, Sources},
        evaluator::{Evaluator, Wish, not_open},
        memory::Memory,
    },
};

/// Longest reason of a dismissal, in characters.
const REASON: usize = 200;

/// What the room is made from.
pub struct MonitorParts {
    /// Keeps issues, alerts and their settings.
    pub store: Store,
    /// News that make checks look at once.
    pub changes: Changes,
    /// Registered models.
    pub registry: Arc<dyn Registry>,
    /// What runs.
    pub serving: Arc<dyn Serving>,
    /// Engines installed.
    pub engines: Arc<dyn Engines>,
    /// Where the time shall come from.
    pub time: Arc<dyn Time>,
    /// The certificates of the encrypted port.
    pub front: Arc<dyn Front>,
    /// Whether this is the appliance.
    pub appliance: Appliance,
    /// The disk with the models.
    pub data_dir: PathBuf,
    /// The disk with the settings.
    pub state_dir: PathBuf,
    /// Addresses others can reach this host by.
    pub addresses: Arc<dyn Fn() -> Vec<IpAddr> + Send + Sync>,
    /// True when only loopback is listened on.
    pub loopback_only: bool,
    /// The box's name now.
    pub box_name: Arc<dyn Fn() -> String + Send + Sync>,
    /// Version of the agent.
    pub version: &'static str,
    /// Checks of other rooms.
    pub more_checks: Vec<Arc<dyn Check>>,
}

/// Issues and alerts.
pub struct Monitor {
    store: Store,
    changes: Changes,
    serving: Arc<dyn Serving>,
    units: Arc<dyn Units>,
    board: Arc<ArcSwap<IssueBoard>>,
    wishes: mpsc::Sender<Wish>,
    outbox: Arc<Notify>,
    teller: Teller,
    sender: tokio::task::AbortHandle,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.sender.abort();
    }
}

impl Monitor {
    /// Reads what was open and starts to look. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start(parts: MonitorParts) -> Result<Arc<Self>, Problem> {
        let open = parts.store.read(issues::open).await?;
        let board = IssueBoard { open: open.clone(), ..IssueBoard::default() };
        let board = Arc::new(ArcSwap::from_pointee(board));
        let units: Arc<dyn Units> = Arc::new(SystemUnits::default());
        let mut checks = checks::all(Sources {
            appliance: parts.appliance,
            data_dir: parts.data_dir,
            state_dir: parts.state_dir,
            addresses: parts.addresses,
            loopback_only: parts.loopback_only,
            registry: parts.registry,
            serving: parts.serving.clone(),
            engines: parts.engines,
            store: parts.store.clone(),
            units: units.clone(),
            time: parts.time,
            front: parts.front,
        });
        checks.extend(parts.more_checks);
        let outbox = Arc::new(Notify::new());
        let teller = Teller { box_name: parts.box_name, version: parts.version };
        let (wishes, queue) = mpsc::channel(32);
        let evaluator = Evaluator {
            store: parts.store.clone(),
            changes: parts.changes.clone(),
            checks,
            board: board.clone(),
            teller: teller.clone(),
            outbox: outbox.clone(),
            memory: Memory::new(open),
            unwritten: Vec::new(),
            begun: std::time::Instant::now(),
        };
        tokio::spawn(evaluator.run(queue));
        let (store, changes) = (parts.store.clone(), parts.changes.clone());
        let sender = Sender { store, changes, outbox: outbox.clone(), version: parts.version, unnoted: None };
        let sender = tokio::spawn(sender.run()).abort_handle();
        Ok(Arc::new(Self { store: parts.store, changes: parts.changes, serving: parts.serving, units, board, wishes, outbox, teller, sender }))
    }

    async fn wish<T>(&self, make: impl FnOnce(oneshot::Sender<T>) -> Wish) -> Result<T, Problem> {
        let stopping = || Problem::new(ProblemKind::ShuttingDown, "The agent is stopping.");
        let (reply, answer) = oneshot::channel();
        self.wishes.send(make(reply)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }

    async fn audited(&self, by: &AccountId, action: &'static str, subject: String, outcome: &'static str) -> Result<(), Problem> {
        let row = AuditRow { at: clock::now(), account: Some(by.clone()), action, subject: Some(subject), outcome };
        Ok(self.store.write(move |tx| audit::insert(tx, &row)).await?)
    }
}

#[async_trait]
impl Issues for Monitor {
    fn board(&self) -> Arc<IssueBoard> {
        self.board.load_full()
    }

    async fn resolved(&self, most: usize) -> Result<Vec<Issue>, Problem> {
        Ok(self.store.read(move |db| issues::resolved(db, most)).await?)
    }

    async fn check_now(&self) -> Result<(), Problem> {
        self.wish(|done| Wish::CheckNow { done }).await
    }

    async fn dismiss(&self, by: &AccountId, id: &IssueId, reason: Option<&str>) -> Result<Issue, Problem> {
        let reason = checked_reason(reason)?;
        let dismissal = Some(Dismissal { at: clock::now(), by: by.clone(), reason });
        self.wish(|reply| Wish::Dismiss { by: by.clone(), id: id.clone(), dismissal, reply }).await?
    }

    async fn recall(&self, by: &AccountId, id: &IssueId) -> Result<Issue, Problem> {
        self.wish(|reply| Wish::Dismiss { by: by.clone(), id: id.clone(), dismissal: None, reply }).await?
    }

    async fn fix(&self, by: &AccountId, id: &IssueId) -> Result<(), Problem> {
        let board = self.board();
        let issue = board.open.iter().find(|issue| issue.id == *id).ok_or_else(|| not_open(id))?;
        let fix = issue.finding.fix.clone().ok_or_else(|| {
            Problem::new(ProblemKind::Conflict, format!("The issue {} has no fix of one click.", issue.finding.code)).hint(issue.finding.hint.clone())
        })?;
        let done = match &fix {
            Fix::LoadModel(model) => self.serving.load(model).await,
            Fix::StartTimeService => self.units.start_time_service().await,
            Fix::SendAlerts => {
                let now = clock::now();
                let hurried = self.store.write(move |tx| warden_store::alerts::hurry(tx, now)).await.map_err(Problem::from);
                self.outbox.notify_one();
                hurried
            }
        };
        self.audited(by, "issue.fix", format!("{} {}", fix.as_str(), issue.finding.subject), if done.is_ok() { "ok" } else { "refused" }).await?;
        done?;
        self.check_now().await
    }
}

fn checked_reason(reason: Option<&str>) -> Result<Option<String>, Problem> {
    let Some(text) = reason.map(str::trim).filter(|text| !text.is_empty()) else { return Ok(None) };
    if text.chars().count() > REASON || text.chars().any(char::is_control) {
        return Err(Problem::new(ProblemKind::Invalid, format!("The reason is longer than {REASON} characters, or has control characters in it."))
            .hint("Write one short line, or leave it out.")
            .param("reason"));
    }
    Ok(Some(text.to_owned()))
}

#[async_trait]
impl Alerts for Monitor {
    async fn config(&self) -> Result<AlertConfig, Problem> {
        Ok(self.store.read(settings::read).await?)
    }

    async fn set(&self, by: &AccountId, new: NewAlertConfig) -> Result<Option<Secret<String>>, Problem> {
        // Only the host goes into the record: the path of an address may be a secret of the receiver.
        let host = if new.enabled || !new.url.is_empty() { target::parse(&new.url)?.authority } else { String::new() };
        if new.codes.as_ref().is_some_and(Vec::is_empty) {
            return Err(Problem::new(ProblemKind::Invalid, "No issue was chosen, so nothing would ever be told.")
                .hint("Choose at least one, or leave the choice out to be told of all.")
                .param("codes"));
        }
        let subject = if new.enabled { host } else { "off".to_owned() };
        let row = AuditRow { at: clock::now(), account: Some(by.clone()), action: "alerts.set", subject: Some(subject), outcome: "ok" };
        let made = self.store.write(move |tx| {
            let had = settings::read(tx)?.has_secret;
            let config = AlertConfig { enabled: new.enabled, url: new.url, codes: new.codes, has_secret: had };
            settings::write(tx, &config)?;
            if !new.enabled {
                warden_store::alerts::give_up_all(tx, "Alerts were turned off.", clock::now())?;
            }
            audit::insert(tx, &row)?;
            if new.new_secret || (new.enabled && !had) { settings::new_secret(tx).map(Some) } else { Ok(None) }
        });
        let made = made.await?;
        self.outbox.notify_one();
        self.changes.publish(Topic::Issues);
        Ok(made)
    }

    async fn test(&self, by: &AccountId) -> Result<DeliveryId, Problem> {
        if !self.config().await?.enabled {
            return Err(Problem::new(ProblemKind::Conflict, "Alerts are off, so no test can be sent.").hint("Turn them on and save first."));
        }
        let teller = self.teller.clone();
        let id = self.store.write(move |tx| message::tell_test(tx, &teller)).await?;
        self.audited(by, "alerts.test", id.to_string(), "ok").await?;
        self.outbox.notify_one();
        self.changes.publish(Topic::Issues);
        Ok(id)
    }

    async fn state(&self, most: usize) -> Result<AlertState, Problem> {
        let read = self.store.read(move |db| {
            let (waiting, _, _) = warden_store::alerts::waiting(db)?;
            Ok(AlertState { waiting, latest: warden_store::alerts::latest(db, most)? })
        });
        Ok(read.await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_short_line() {
        assert_eq!(checked_reason(Some("  disk ordered ")).unwrap().as_deref(), Some("disk ordered"));
        assert_eq!(checked_reason(Some("  ")).unwrap(), None);
        assert!(checked_reason(Some("a\nb")).is_err());
        assert!(checked_reason(Some(&"x".repeat(201))).is_err());
    }
}
