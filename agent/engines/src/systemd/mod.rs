//! The runner of the appliance: one unit of the template `warden-engine@` per replica, started and stopped over D-Bus.
//!
//! In: plans. Out: launches named by the unit's InvocationID. Before a start the root helper points the unit at an engine pack and the
//! launch spec is written; the system manager does the rest and keeps the engine whatever happens to the agent. The bus is connected to
//! when it is first needed and again after it was lost; without a bus every verb is a sentence, never a crash.

mod bus;
mod packs;
mod spec;
mod unit;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::{sync::Mutex, time::sleep};
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    engine::{Activity, Answering, EngineKind, EnginePack, Engines, Found, Launch, LoadView, Observation, PackState, ReplicaPlan, ReplicaSample},
    ids::ReplicaId,
    model::StateReason,
    replica::Endpoint,
    units::Tokens,
};
use zbus::{Connection, OwnedObjectPath, connection};

use crate::{
    activity,
    adapter::{self, Ground},
    check_extra_args, log,
    machine::Machine,
    outlook::Outlook,
    probe::{self, Health},
    verdict,
};
use bus::{HelperProxy, ManagerProxy, properties};
use unit::Unit;

/// Where things are on the appliance.
#[derive(Clone, Debug)]
pub struct SystemdConfig {
    /// Engine packs: `<sha256>.raw` with `<sha256>.json`.
    pub packs_dir: PathBuf,
    /// Launch specs; the agent's own folder, shown read-only to each engine.
    pub launch_dir: PathBuf,
    /// One folder per replica with `engine.sock` and `engine.log`.
    pub engine_runtime_dir: PathBuf,
}

const UNIT_INTERFACE: &str = "org.freedesktop.systemd1.Unit";
const SERVICE_INTERFACE: &str = "org.freedesktop.systemd1.Service";
const CALL_LIMIT: Duration = Duration::from_secs(20);
const START_LIMIT: Duration = Duration::from_secs(90);
const STOP_LIMIT: Duration = Duration::from_secs(45);
const LOOK: Duration = Duration::from_millis(100);
const HOUSEKEEPING: Duration = Duration::from_secs(2);
const LINES_READ: usize = 2000;
/// Where an engine may keep what it compiled: the only folder in its sandbox in which it may write and run. It ends with the engine.
const CACHE: &str = "/tmp/engine-cache";

/// Runs engines as units.
pub struct SystemdEngines {
    config: SystemdConfig,
    bus: Mutex<Option<Connection>>,
    outlook: Outlook,
    machine: Machine,
}

impl SystemdEngines {
    /// A runner; connects to the bus when it is first needed. Looks every other second at the packs (a change is published as
    /// `Topic::Engines`) and at the size of the logs. Must be called inside a tokio runtime.
    #[must_use]
    pub fn new(config: SystemdConfig, changes: Changes) -> Arc<Self> {
        let engines = Arc::new(Self { config, bus: Mutex::new(None), outlook: Outlook::default(), machine: Machine::present() });
        tokio::spawn(keep_house(Arc::downgrade(&engines), changes));
        engines
    }

    /// The connection, made anew when the last one was lost.
    async fn bus(&self) -> Result<Connection, Problem> {
        let mut held = self.bus.lock().await;
        if let Some(connection) = held.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let connecting = async { connection::Builder::system().method_timeout(CALL_LIMIT).build().await };
        let connection = tokio::time::timeout(CALL_LIMIT, connecting).await.map_err(|_| no_bus("it did not answer in time"))?;
        let connection = connection.map_err(|cause| no_bus(&cause.to_string()))?;
        *held = Some(connection.clone());
        Ok(connection)
    }

    async fn manager(&self) -> Result<(Connection, ManagerProxy<'static>), Problem> {
        let bus = self.bus().await?;
        let manager = ManagerProxy::new(&bus).await.map_err(|cause| said("reach the system manager", &cause))?;
        Ok((bus, manager))
    }

    /// The unit of a replica as it is now; `None` when the system does not know it.
    async fn unit(&self, replica: &ReplicaId) -> Result<Option<(Connection, OwnedObjectPath, Unit)>, Problem> {
        let (bus, manager) = self.manager().await?;
        let path = match manager.get_unit(&unit_name(replica)).await {
            Ok(path) => path,
            Err(cause) if is_unknown_unit(&cause) => return Ok(None),
            Err(cause) => return Err(said("look at the engine", &cause)),
        };
        let found = properties(&bus, &path, UNIT_INTERFACE).await.map_err(|cause| said("look at the engine", &cause))?;
        Ok(Some((bus, path, Unit::read(&found))))
    }

    /// Waits until a start or stop is through.
    async fn settled(&self, replica: &ReplicaId, limit: Duration, done: impl Fn(&Unit) -> bool) -> Result<Option<Unit>, Problem> {
        let begin = Instant::now();
        loop {
            match self.unit(replica).await? {
                None => return Ok(None),
                Some((_, _, unit)) if !unit.has_job && done(&unit) => return Ok(Some(unit)),
                Some(_) if begin.elapsed() > limit => {
                    return Err(Problem::new(
                        ProblemKind::EngineFailed,
                        format!("The system did not finish its work on {} in time.", unit_name(replica)),
                    )
                    .hint("Try again. If it stays so, restart the appliance."));
                }
                Some(_) => sleep(LOOK).await,
            }
        }
    }

    async fn reason(&self, replica: &ReplicaId) -> StateReason {
        let lines = self.log_tail(replica, LINES_READ).await;
        let found = match self.unit(replica).await {
            Ok(Some((bus, path, _))) => properties(&bus, &path, SERVICE_INTERFACE).await.unwrap_or_default(),
            _ => std::collections::HashMap::new(),
        };
        unit::reason(self.engine(replica), &found, &lines)
    }

    /// The control group of a replica's unit, which its processes never leave.
    async fn group(&self, replica: &ReplicaId) -> Option<String> {
        let (bus, path, _) = self.unit(replica).await.ok().flatten()?;
        unit::group(&properties(&bus, &path, SERVICE_INTERFACE).await.ok()?)
    }

    /// Which engine a replica's last launch is, as its spec says.
    fn engine(&self, replica: &ReplicaId) -> EngineKind {
        spec::engine(&self.config.launch_dir, replica).unwrap_or(EngineKind::LlamaCpp)
    }

    fn folder(&self, replica: &ReplicaId) -> PathBuf {
        self.config.engine_runtime_dir.join(replica.as_str())
    }

    fn launch(&self, replica: ReplicaId, invocation: String) -> Launch {
        let endpoint = Endpoint::Unix(self.folder(&replica).join("engine.sock"));
        Launch { replica, launch: invocation, endpoint }
    }

    async fn gone(&self, launch: &Launch) -> Observation {
        self.outlook.forget(&launch.launch);
        Observation::Gone { reason: self.reason(&launch.replica).await }
    }
}

#[async_trait]
impl Engines for SystemdEngines {
    async fn packs(&self) -> Vec<EnginePack> {
        let folder = self.config.packs_dir.clone();
        tokio::task::spawn_blocking(move || packs::list(&folder)).await.unwrap_or_default()
    }

    async fn start(&self, plan: &ReplicaPlan) -> Result<Launch, Problem> {
        let nodes = card_nodes(plan)?;
        let packs = self.packs().await;
        let mut fitting = packs.iter().filter(|pack| pack.engine == plan.engine);
        let Some(pack) = fitting.clone().find(|pack| pack.state == PackState::Ready) else {
            return Err(fitting.next().map_or_else(
                || Problem::new(ProblemKind::EngineUnavailable, format!("No engine pack for {} is installed.", plan.engine.as_str())),
                verdict::not_ready,
            ));
        };
        let socket = self.folder(&plan.replica).join("engine.sock");
        let command = adapter::command(plan, Ground { socket: &socket, cache: Path::new(CACHE), machine: self.machine })?;
        self.stop(&plan.replica).await?;
        let spec = spec::Spec::new(plan, command);
        spec.write(&self.config.launch_dir).map_err(|cause| Problem::from_io(&self.config.launch_dir.display().to_string(), &cause))?;
        let (bus, manager) = self.manager().await?;
        let helper = HelperProxy::new(&bus).await.map_err(|cause| said("reach the helper", &cause))?;
        let digest = pack.digest.as_deref().unwrap_or_default();
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        helper
            .activate_pack(plan.replica.as_str(), digest, &nodes, self.machine.engine_memory().unwrap_or(0))
            .await
            .map_err(|cause| refused_pack(&cause))?;
        manager.start_unit(&unit_name(&plan.replica), "replace").await.map_err(|cause| said("start the engine", &cause))?;
        let unit = self.settled(&plan.replica, START_LIMIT, |unit| unit.active != "activating").await?;
        match unit {
            Some(Unit { active, invocation: Some(invocation), .. }) if active == "active" => {
                tracing::info!(replica = %plan.replica, launch = %invocation, "engine started");
                Ok(self.launch(plan.replica.clone(), invocation))
            }
            _ => {
                let reason = self.reason(&plan.replica).await;
                let problem = Problem::new(ProblemKind::EngineFailed, reason.message);
                Err(reason.hint.into_iter().fold(problem, Problem::hint))
            }
        }
    }

    async fn stop(&self, replica: &ReplicaId) -> Result<(), Problem> {
        let (_, manager) = self.manager().await?;
        let name = unit_name(replica);
        match manager.stop_unit(&name, "replace").await {
            Ok(_) => {}
            Err(cause) if is_unknown_unit(&cause) => return Ok(()),
            Err(cause) => return Err(said("stop the engine", &cause)),
        }
        self.settled(replica, STOP_LIMIT, |unit| !unit.lives()).await?;
        // A failure of the run before must not stick to the next one. There is nothing to reset after a clean end.
        let _ = manager.reset_failed_unit(&name).await;
        Ok(())
    }

    async fn running(&self) -> Result<Vec<Found>, Problem> {
        let (bus, manager) = self.manager().await?;
        let units = manager.list_units_by_patterns(&[], &["warden-engine@*.service"]).await.map_err(|cause| said("list the engines", &cause))?;
        let mut launches = Vec::new();
        for listed in units {
            let Some(replica) = replica_of(&listed.0) else { continue };
            let found = properties(&bus, &listed.6, UNIT_INTERFACE).await.map_err(|cause| said("look at the engine", &cause))?;
            let unit = Unit::read(&found);
            if let (true, Some(invocation)) = (unit.lives(), unit.invocation) {
                // Written after the engine before it was stopped, so that it is of what runs.
                let generation = spec::generation(&self.config.launch_dir, &replica);
                launches.push(Found { launch: self.launch(replica, invocation), generation });
            }
        }
        Ok(launches)
    }

    async fn observe(&self, launch: &Launch) -> Observation {
        match self.unit(&launch.replica).await {
            Ok(Some((_, _, unit))) if unit.lives() && unit.invocation.as_deref() == Some(&launch.launch) => {}
            Ok(_) => return self.gone(launch).await,
            // Without a bus nothing is known of the process; what the socket says still counts.
            Err(problem) => tracing::debug!(%problem, "an engine could only be looked at through its socket"),
        }
        let engine = self.engine(&launch.replica);
        let health = probe::health(&launch.endpoint).await;
        let told = match health {
            Health::Ready if !self.outlook.told_all(&launch.launch) => adapter::answering(engine, &launch.endpoint).await,
            _ => Answering::default(),
        };
        let path = self.folder(&launch.replica).join("engine.log");
        let loading = health != Health::Ready && !self.outlook.answered(&launch.launch);
        let activity = if loading { self.activity(launch).await } else { None };
        self.outlook.judge(&launch.launch, health, told, Instant::now(), || LoadView {
            activity,
            ..adapter::load_view(engine, &log::last_lines(&path, LINES_READ))
        })
    }

    async fn activity(&self, launch: &Launch) -> Option<Activity> {
        let (group, log) = (self.group(&launch.replica).await?, self.folder(&launch.replica).join("engine.log"));
        tokio::task::spawn_blocking(move || activity::of_group(&group, &log)).await.ok().flatten()
    }

    async fn traces(&self, launch: &Launch) -> Vec<(String, String)> {
        let Some(group) = self.group(&launch.replica).await else { return Vec::new() };
        tokio::task::spawn_blocking(move || activity::traces(&activity::processes_of_group(&group))).await.unwrap_or_default()
    }

    fn check_arguments(&self, engine: EngineKind, arguments: &[String]) -> Result<(), Problem> {
        check_extra_args(engine, arguments)
    }

    async fn sample(&self, launch: &Launch) -> Result<ReplicaSample, Problem> {
        adapter::sample(self.engine(&launch.replica), &launch.endpoint).await.ok_or_else(|| verdict::no_answer(launch))
    }

    async fn count_tokens(&self, launch: &Launch, text: &str) -> Result<Tokens, Problem> {
        adapter::count_tokens(self.engine(&launch.replica), &launch.endpoint, text).await.ok_or_else(|| verdict::no_answer(launch))
    }

    async fn log_tail(&self, replica: &ReplicaId, lines: usize) -> Vec<String> {
        let path = self.folder(replica).join("engine.log");
        tokio::task::spawn_blocking(move || log::last_lines(&path, lines)).await.unwrap_or_default()
    }
}

/// The numbers of the device files of a plan's cards. The sandbox opens devices by them; without, the engine would run on processors unseen.
fn card_nodes(plan: &ReplicaPlan) -> Result<Vec<String>, Problem> {
    if plan.device_minors.len() == plan.gpus.len() {
        return Ok(plan.device_minors.iter().map(ToString::to_string).collect());
    }
    Err(Problem::new(ProblemKind::EngineUnavailable, format!("The driver does not tell the device files of the cards of {}.", plan.replica))
        .hint("Look at the cards on the page Cards. Take the cards out of the model's settings to run it on processors."))
}

fn unit_name(replica: &ReplicaId) -> String {
    format!("warden-engine@{replica}.service")
}

fn replica_of(unit: &str) -> Option<ReplicaId> {
    ReplicaId::new(unit.strip_prefix("warden-engine@")?.strip_suffix(".service")?).ok()
}

fn is_unknown_unit(cause: &zbus::Error) -> bool {
    matches!(cause, zbus::Error::MethodError(name, ..) if name.as_str() == "org.freedesktop.systemd1.NoSuchUnit")
}

fn no_bus(cause: &str) -> Problem {
    Problem::new(ProblemKind::SystemService, format!("The system bus cannot be reached: {cause}."))
        .hint("Engines cannot be started or stopped until it is back. Restart the appliance if it stays so.")
        .retry_after(Duration::from_secs(10))
}

fn said(what: &str, cause: &zbus::Error) -> Problem {
    Problem::new(ProblemKind::SystemService, format!("The system refused to {what}: {cause}."))
        .hint("Try again. If it stays so, restart the appliance.")
        .retry_after(Duration::from_secs(10))
}

/// The helper's own refusals carry a sentence; everything else is a fault of the bus.
fn refused_pack(cause: &zbus::Error) -> Problem {
    match cause {
        zbus::Error::MethodError(name, Some(sentence), _) if name.as_str().starts_with("org.lmwarden.Helper1.Error.") => {
            Problem::new(ProblemKind::EngineFailed, format!("The engine pack was refused: {sentence}.").replace("..", "."))
                .hint("Install an engine pack from a signed bundle.")
        }
        other => said("set up the engine pack", other),
    }
}

async fn keep_house(engines: Weak<SystemdEngines>, changes: Changes) {
    let mut seen: Option<Vec<EnginePack>> = None;
    let mut every = tokio::time::interval(HOUSEKEEPING);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let Some(engines) = engines.upgrade() else { return };
        let runtime = engines.config.engine_runtime_dir.clone();
        let _ = tokio::task::spawn_blocking(move || {
            for folder in std::fs::read_dir(runtime).into_iter().flatten().filter_map(Result::ok) {
                let _ = log::bound(&folder.path().join("engine.log"));
            }
        })
        .await;
        let now = engines.packs().await;
        if seen.as_ref().is_some_and(|before| *before != now) {
            changes.publish(Topic::Engines);
        }
        seen = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::tests::plan;

    #[test]
    fn an_engine_is_given_the_device_files_of_its_cards_or_is_not_started() {
        let two = ReplicaPlan { device_minors: vec![3, 1], ..plan(EngineKind::Vllm, 1, 2, &[]) };
        assert_eq!(card_nodes(&two).unwrap(), ["3", "1"]);
        assert!(card_nodes(&plan(EngineKind::LlamaCpp, 1, 0, &[])).unwrap().is_empty());
        let unknown = card_nodes(&ReplicaPlan { device_minors: vec![3], ..two }).unwrap_err();
        assert!(unknown.kind == ProblemKind::EngineUnavailable && unknown.hint.is_some(), "{unknown:?}");
    }
}
