//! The process runner of a dev machine: engines as detached process groups that outlive the agent and are found again.
//!
//! In: plans. Out: launches named by boot, process id and start time, written down in the runtime folder. Output of an engine goes to its
//! own log file, never to the agent. The pure parts (reading the build's file, /proc, records) lie beside this driver.

mod build;
mod identity;
mod place;
mod record;
mod spawn;
mod stop;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    engine::{Activity, Answering, EngineKind, EnginePack, Engines, Found, Launch, LoadView, Observation, ReplicaPlan, ReplicaSample},
    ids::ReplicaId,
    replica::Endpoint,
    units::Tokens,
};

use crate::{
    activity,
    adapter::{self, Ground},
    check_extra_args, log,
    machine::Machine,
    outlook::Outlook,
    probe::{self, Health},
    verdict::{self, End},
};
use identity::Identity;
use place::Place;
use record::Record;

/// Where things are on a dev machine. All folders are absolute.
#[derive(Clone, Debug)]
pub struct ProcessConfig {
    /// Holds `llama.cpp.json` and, where it was installed, `vllm.json`, which the builds of the engines write.
    pub engines_dir: PathBuf,
    /// Sockets and records of launches; made when missing, closed to other users.
    pub runtime_dir: PathBuf,
    /// Logs of engines; made when missing.
    pub log_dir: PathBuf,
}

/// Lines of the log that are read for phase and cause.
const LINES_READ: usize = 2000;
const HOUSEKEEPING: Duration = Duration::from_secs(1);
const LOOK_FOR_STRAYS: Duration = Duration::from_secs(10);

/// Runs engines as processes.
pub struct ProcessEngines {
    engines_dir: PathBuf,
    place: Place,
    outlook: Outlook,
    ends: Arc<Mutex<HashMap<String, End>>>,
    machine: Machine,
    turns: Mutex<HashMap<ReplicaId, Arc<tokio::sync::Mutex<()>>>>,
    this: Weak<Self>,
}

impl ProcessEngines {
    /// A runner. Makes its folders, and from then on looks once a second at the build's file (a change is published as
    /// `Topic::Engines`) and at the size of the logs. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// `Invalid` when a path cannot be used for Unix sockets, `DiskFull`, `Forbidden` when a folder cannot be made.
    pub fn new(config: ProcessConfig, changes: Changes) -> Result<Arc<Self>, Problem> {
        let place = Place::prepare(config.runtime_dir, config.log_dir)?;
        let engines = Arc::new_cyclic(|this| Self {
            engines_dir: config.engines_dir,
            place,
            outlook: Outlook::default(),
            ends: Arc::default(),
            machine: Machine::present(),
            turns: Mutex::default(),
            this: this.clone(),
        });
        tokio::spawn(keep_house(Arc::downgrade(&engines), changes));
        Ok(engines)
    }

    /// One start, stop or clearing of a replica at a time.
    async fn turn(&self, replica: &ReplicaId) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(replica.clone()).or_default())
        };
        turn.lock_owned().await
    }

    /// Ends whatever runs for a replica, recorded or not, and clears its traces. Takes no longer than ending it may.
    async fn clear(&self, replica: &ReplicaId) -> Result<(), Problem> {
        let socket = self.place.socket(replica);
        let mut processes: Vec<Identity> = record::read(&self.place.runtime_dir, replica).and_then(|r| r.process).into_iter().collect();
        let stray = socket.clone();
        // The command line of a process that hangs inside the system cannot be read, and reading it hangs as well.
        let looked = tokio::time::timeout(LOOK_FOR_STRAYS, tokio::task::spawn_blocking(move || identity::listening_on(&stray)));
        let strays = match looked.await {
            Ok(strays) => strays.unwrap_or_default(),
            Err(_) => {
                return Err(Problem::new(
                    ProblemKind::EngineFailed,
                    format!("The processes of this machine cannot be looked through for {replica}: one hangs inside the system."),
                )
                .hint("It hangs most often in a driver or on a disk that does not answer. Restart the machine."));
            }
        };
        processes.extend(strays.into_iter().filter_map(Identity::of));
        for process in processes {
            if !stop::end(&process).await {
                return Err(Problem::new(ProblemKind::EngineFailed, format!("The engine {replica} (process {}) cannot be ended.", process.pid))
                    .hint("It hangs inside the system, most often in a driver. Restart the machine."));
            }
            self.outlook.forget(&process.to_string());
        }
        record::remove(&self.place.runtime_dir, replica);
        self.place.free_socket(replica)
    }

    /// The process of a launch, if the record of its replica is still of that launch.
    fn process_of(&self, launch: &Launch) -> Option<Identity> {
        let known = record::read(&self.place.runtime_dir, &launch.replica).and_then(|r| r.process);
        known.filter(|process| process.to_string() == launch.launch)
    }

    fn end_of(&self, launch: &str) -> End {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).get(launch).copied().unwrap_or(End::Unseen)
    }

    /// Which engine a replica's launch is, as it was written down.
    fn engine(&self, replica: &ReplicaId) -> EngineKind {
        record::read(&self.place.runtime_dir, replica).map_or(EngineKind::LlamaCpp, |record| record.engine)
    }

    fn gone(&self, launch: &Launch) -> Observation {
        self.outlook.forget(&launch.launch);
        let lines = log::last_lines(&self.place.log(&launch.replica), LINES_READ);
        Observation::Gone { reason: verdict::reason(self.engine(&launch.replica), self.end_of(&launch.launch), lines.iter().map(String::as_str)) }
    }

    /// Collects the process when it ends, so that its exit status is known and it does not stay as a dead entry.
    fn collect(&self, mut child: tokio::process::Child, launch: String) {
        let ends = Arc::clone(&self.ends);
        tokio::spawn(async move {
            if let Ok(status) = child.wait().await {
                use std::os::unix::process::ExitStatusExt;
                let end = status.code().map(End::Code).or_else(|| status.signal().map(End::Signal)).unwrap_or(End::Unseen);
                let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
                if ends.len() > 1000 {
                    ends.clear();
                }
                ends.insert(launch, end);
            }
        });
    }
}

#[async_trait]
impl Engines for ProcessEngines {
    async fn packs(&self) -> Vec<EnginePack> {
        let folder = self.engines_dir.clone();
        let builds = tokio::task::spawn_blocking(move || build::all(&folder)).await.unwrap_or_default();
        builds.into_iter().map(|build| build.pack).collect()
    }

    async fn start(&self, plan: &ReplicaPlan) -> Result<Launch, Problem> {
        let build = build::read(&self.engines_dir, plan.engine);
        let Some(program) = build.program else { return Err(verdict::not_ready(&build.pack)) };
        let socket = self.place.socket(&plan.replica);
        let cache = self.engines_dir.join(format!("{}-cache", plan.engine.as_str()));
        let command = adapter::command(plan, Ground { socket: &socket, cache: &cache, machine: self.machine })?;
        let _turn = self.turn(&plan.replica).await;
        self.clear(&plan.replica).await?;
        self.place.rotate_log(&plan.replica)?;
        // Written before the start: a full or read-only disk is found out before anything runs, and an agent that ends in between
        // leaves a trace.
        let mut record = Record::new(plan.replica.clone(), plan.generation.clone(), plan.engine, socket.clone());
        self.place.write_record(&record)?;
        let child = spawn::spawn(&spawn::Start {
            program: &program,
            arguments: &command.arguments,
            environment: &command.environment,
            log: &self.place.log(&plan.replica),
        })
        .map_err(|cause| {
            record::remove(&self.place.runtime_dir, &plan.replica);
            Problem::new(ProblemKind::EngineFailed, format!("The engine {} could not be started: {cause}.", program.display()))
                .hint("Build the engine again (`make engine`, `make vllm`), and check that the disk is not full.")
        })?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        // Still ours to collect, so the process id cannot have passed to another process.
        let Some(process) = pid.and_then(Identity::of) else {
            record::remove(&self.place.runtime_dir, &plan.replica);
            return Err(Problem::new(ProblemKind::EngineFailed, "The engine ended as soon as it was started.").hint("Its log says why."));
        };
        let launch = process.to_string();
        self.collect(child, launch.clone());
        record.process = Some(process.clone());
        if let Err(problem) = self.place.write_record(&record) {
            stop::end(&process).await;
            record::remove(&self.place.runtime_dir, &plan.replica);
            return Err(problem);
        }
        tracing::info!(replica = %plan.replica, launch = %launch, "engine started");
        Ok(Launch { replica: plan.replica.clone(), launch, endpoint: Endpoint::Unix(socket) })
    }

    async fn stop(&self, replica: &ReplicaId) -> Result<(), Problem> {
        let _turn = self.turn(replica).await;
        self.clear(replica).await
    }

    async fn running(&self) -> Result<Vec<Found>, Problem> {
        let folder = self.place.runtime_dir.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let records = record::all(&folder).map_err(|cause| Problem::from_io(&folder.display().to_string(), &cause))?;
            Ok(records.into_iter().partition(|record| record.process.as_ref().is_some_and(Identity::lives)))
        });
        let (living, dead): (Vec<Record>, Vec<Record>) = looked.await.map_err(|_| Problem::internal("Looking for engines ended unexpectedly."))??;
        // Dead, or started by an agent that ended before it could write down what it had started. What is left of one may hang inside the
        // system and take its time, so nobody waits for it here; a start of the same replica does.
        for record in dead {
            let this = self.this.clone();
            tokio::spawn(async move {
                let Some(engines) = this.upgrade() else { return };
                let _turn = engines.turn(&record.replica).await;
                if record::read(&engines.place.runtime_dir, &record.replica).as_ref() == Some(&record)
                    && let Err(problem) = engines.clear(&record.replica).await
                {
                    tracing::warn!(replica = %record.replica, %problem, "what is left of an engine could not be cleared");
                }
            });
        }
        let found = |record: Record| {
            let launch = record.process?.to_string();
            let launch = Launch { replica: record.replica, launch, endpoint: Endpoint::Unix(record.socket) };
            Some(Found { launch, generation: Some(record.generation) })
        };
        Ok(living.into_iter().filter_map(found).collect())
    }

    async fn observe(&self, launch: &Launch) -> Observation {
        let Some(process) = self.process_of(launch) else { return self.gone(launch) };
        if !process.lives() {
            // Its exit status may be a moment late.
            tokio::time::sleep(Duration::from_millis(50)).await;
            return self.gone(launch);
        }
        let engine = self.engine(&launch.replica);
        let health = probe::health(&launch.endpoint).await;
        let told = match health {
            Health::Ready if !self.outlook.told_all(&launch.launch) => adapter::answering(engine, &launch.endpoint).await,
            _ => Answering::default(),
        };
        self.outlook.judge(&launch.launch, health, told, Instant::now(), || {
            let log = self.place.log(&launch.replica);
            let activity = activity::of_processes(&identity::session_of(process.pid), &log);
            LoadView { activity, ..adapter::load_view(engine, &log::last_lines(&log, LINES_READ)) }
        })
    }

    async fn activity(&self, launch: &Launch) -> Option<Activity> {
        let (process, log) = (self.process_of(launch)?, self.place.log(&launch.replica));
        tokio::task::spawn_blocking(move || activity::of_processes(&identity::session_of(process.pid), &log)).await.ok().flatten()
    }

    async fn traces(&self, launch: &Launch) -> Vec<(String, String)> {
        let Some(process) = self.process_of(launch) else { return Vec::new() };
        tokio::task::spawn_blocking(move || activity::traces(&identity::session_of(process.pid))).await.unwrap_or_default()
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
        let path = self.place.log(replica);
        tokio::task::spawn_blocking(move || log::last_lines(&path, lines)).await.unwrap_or_default()
    }
}

async fn keep_house(engines: Weak<ProcessEngines>, changes: Changes) {
    let mut seen: Option<Vec<build::Build>> = None;
    let mut every = tokio::time::interval(HOUSEKEEPING);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let Some(engines) = engines.upgrade() else { return };
        let now = tokio::task::spawn_blocking(move || {
            engines.place.bound_logs();
            build::all(&engines.engines_dir)
        })
        .await;
        let Ok(now) = now else { continue };
        if seen.as_ref().is_some_and(|before| *before != now) {
            changes.publish(Topic::Engines);
        }
        seen = Some(now);
    }
}
