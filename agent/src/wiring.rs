//! Start order and shutdown: makes the rooms, joins them through their ports, serves, and takes everything down in order.
//!
//! No decision of any room is made here.

use std::{os::unix::fs::DirBuilderExt, path::Path, sync::Arc, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use warden_access::Access;
use warden_domain::{
    Problem,
    change::Changes,
    engine::Engines,
    front::{Front, PlainDoor},
    machine::{Machine, NotOurs},
    model::StateWord,
    replica::Serving,
    tasks::Tasks,
};
use warden_engines::{ProcessConfig, ProcessEngines, SystemdConfig, SystemdEngines};
use warden_gateway::{FlightTable, Gateway, GatewayParts};
use warden_models::{Models, ModelsConfig};
use warden_monitor::{Appliance, Monitor, MonitorParts};
use warden_platform::ApplianceMachine;
use warden_serving::{ServingParts, ServingRoom};
use warden_store::Store;
use warden_tls::{Found, FrontRoom};

use crate::{
    admin_reset,
    by_name::ByName,
    cards, claim_folders,
    config::{Config, Listen, Profile},
    console_socket,
    disks::Disks,
    ending, listeners,
    local_updates::LocalUpdates,
    place::Place,
    plain_door::Door,
    redirect,
    routes::{Rooms, hosts},
    seed,
    sockets::{self, Socket, Spoken},
    status::{self, StatusSource},
    updates::{self, Running, ToldMachine},
};

/// Runs the agent until SIGTERM or SIGINT, then drains and returns.
///
/// # Errors
/// What kept it from starting, as a sentence with the way out.
pub async fn run(config: Config) -> Result<(), Problem> {
    for dir in [&config.state_dir, &config.data_dir, &config.models_dir(), &config.runtime_dir] {
        make_dir(dir)?;
    }
    let _locks = claim_folders::claim(&[&config.state_dir, &config.runtime_dir])?;
    let (sockets, door) = open_sockets(&config.listen)?;
    let changes = Changes::new();
    let running = Running::look(&config);
    let version = running.version;
    let (store, left_behind) = running.open_store(&config)?;
    let ledger = store.ledger(&changes);
    let access = Access::open(store.clone(), changes.clone()).await?;
    seed::apply(&config.state_dir, &store, &access).await;
    let machine: Arc<dyn Machine> = match config.profile {
        Profile::Dev => Arc::new(NotOurs),
        Profile::Appliance => Arc::new(ApplianceMachine::default()),
    };
    admin_reset::apply(machine.as_ref(), access.as_ref()).await;
    let models =
        Models::new(store.clone(), ModelsConfig { models_dir: config.models_dir(), allowed_roots: config.model_roots.clone() }, changes.clone());
    let tasks = Tasks::new(changes.clone());
    let disks = Disks::open(&config, &store, &tasks, &changes, &models).await?;
    let engines = engines(&config, &changes)?;
    let gpus = cards::open(&config, &changes);
    let flights = FlightTable::new();
    let serving = ServingRoom::start(ServingParts {
        store: store.clone(),
        registry: models.clone(),
        engines: engines.clone(),
        flights: flights.clone(),
        gpus: gpus.clone(),
        rules: config.serving.clone(),
        evidence_dir: config.state_dir.join("evidence"),
        launches_dir: config.state_dir.join("launches"),
        changes: changes.clone(),
    })
    .await?;
    let runs = serving.clone();
    let by_name = ByName::open(&config, &store, &models, &tasks, &changes, gpus.clone(), version).await?;
    by_name.downloads.start(serving.clone());
    models.set_in_use(move |id| runs.states().get(id).is_some_and(|s| !matches!(s.state, StateWord::Stopped | StateWord::Failed)));
    let gateway = Gateway::new(
        GatewayParts { keys: access.clone(), serving: serving.clone(), demand: serving.clone(), ledger: ledger.clone(), flights: flights.clone() },
        config.gateway.clone(),
    );

    let main = sockets.iter().find(|socket| socket.spoken != Spoken::Redirect);
    let address = main.and_then(|socket| socket.listener.local_addr().ok());
    let loopback_only = address.is_some_and(|a| a.ip().is_loopback());
    let (port, encrypted) = (address.map_or(8080, |a| a.port()), main.is_some_and(|socket| socket.spoken == Spoken::Tls));
    let place = Place::start(&config, &store, &changes, port, encrypted);
    let front = open_front(&config, &store, &changes, door.clone(), &place).await?;
    let tls = warden_tls::server_config(&front)?.map(tokio_rustls::TlsAcceptor::from);
    let updates = updates::open(
        &config,
        &running,
        updates::Rooms {
            store: store.clone(),
            bus: place.bus.clone(),
            time: place.time.clone(),
            registry: models.clone(),
            serving: serving.clone(),
            flights: flights.clone(),
            storage: disks.storage.clone(),
            machine: machine.clone(),
            changes: changes.clone(),
            tasks: tasks.clone(),
            console_port: port,
            left_behind,
        },
    )
    .await?;
    updates.set_sticks(disks.sticks());
    let machine: Arc<dyn Machine> = Arc::new(ToldMachine { inner: machine, updates: updates.clone() });
    let monitor = Monitor::start(MonitorParts {
        store: store.clone(),
        changes: changes.clone(),
        registry: models.clone(),
        serving: serving.clone(),
        engines: engines.clone(),
        time: place.time.clone(),
        front: front.clone(),
        appliance: if config.profile == Profile::Appliance { Appliance::Yes } else { Appliance::No },
        data_dir: config.data_dir.clone(),
        state_dir: config.state_dir.clone(),
        addresses: Arc::new(status::own_addresses),
        loopback_only,
        box_name: place.called(),
        version,
        more_checks: updates.checks().into_iter().chain([disks.check.clone()]).collect(),
    })
    .await?;
    let source = StatusSource {
        accounts: access.clone(),
        recovery: access.clone(),
        registry: models.clone(),
        serving: serving.clone(),
        front: front.clone(),
        issues: monitor.clone(),
        box_name: place.called(),
        encrypted,
        port,
        loopback_only,
        version,
        updates: updates.clone(),
    };
    let rooms = Rooms {
        profile: config.profile,
        access,
        machine,
        models,
        serving,
        engines,
        gpus,
        monitor,
        changes,
        gateway,
        flights,
        place,
        front,
        disks,
        by_name,
        updates,
        version,
    };
    let front_door = rooms.front_door();
    let ((ender, end), unread) = (ending::ending(), config.gateway.client_pause);
    let mut servers = JoinSet::new();
    for Socket { listener, spoken } in sockets {
        let (service, tls) = match spoken {
            Spoken::Plain => (front_door.clone(), None),
            Spoken::Redirect => {
                let redirect = redirect::router(rooms.front.clone(), hosts(&rooms.front));
                servers.spawn(listeners::serve_tcp(listener, redirect, None, end.clone(), unread));
                continue;
            }
            Spoken::Tls if tls.is_none() => return Err(Problem::internal("There is an encrypted port but no certificate for it.")),
            Spoken::Tls => (front_door.clone(), tls.clone()),
        };
        servers.spawn(listeners::serve_tcp(listener, service, tls, end.clone(), unread));
    }
    if let Some(door) = &door {
        let end = end.clone();
        door.serve_with(Box::new(move |listener, stop| {
            tokio::spawn(listeners::serve_tcp(listener, front_door.clone(), None, end.stopped_by(stop), unread))
        }));
    }
    if let Some(door) = door.as_ref().filter(|_| !rooms.front.config().plain_http) {
        door.forget_unwanted().await;
    }
    let front_watch = rooms.front.watch();
    let local = LocalUpdates { updates: rooms.updates.clone(), tasks: rooms.disks.tasks.clone(), gateway: rooms.gateway.clone() };
    let console = console_socket::open(&config.runtime_dir)?;
    servers.spawn(listeners::serve_unix(console, console_socket::router(source.clone(), local), end.clone()));
    rooms.updates.start();
    announce(&config, &source).await;
    let watchdog = tokio::spawn(pet_watchdog());

    wait_for_end().await?;
    tracing::info!("stopping: no new connections; requests in flight may finish");
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    front_watch.abort();
    ender.stop();
    if let Some(door) = &door {
        door.pause().await;
    }
    ender.last_call().await;
    rooms.gateway.drain(config.drain).await;
    // What is still open now are pages' event streams and idle connections.
    tokio::time::sleep(Duration::from_millis(200)).await;
    ender.cut();
    while servers.join_next().await.is_some() {}
    watchdog.abort();
    rooms.serving.shutdown(config.stop_engines_on_exit).await;
    if let Err(error) = ledger.flush().await {
        tracing::error!(%error, "usage of the last moments could not be written");
    }
    store.close().await;
    tracing::info!("stopped");
    Ok(())
}

/// The sockets, and on the appliance the door of its plain port with the socket systemd may have kept for it.
fn open_sockets(listen: &Listen) -> Result<(Vec<Socket>, Option<Arc<Door>>), Problem> {
    let sockets = sockets::open(listen)?;
    if !matches!(listen, Listen::Systemd) {
        return Ok((sockets, None));
    }
    let (mut kept, sockets): (Vec<_>, Vec<_>) = sockets.into_iter().partition(|socket| socket.spoken == Spoken::Plain);
    Ok((sockets, Some(Door::new(kept.pop().map(|socket| socket.listener)))))
}

async fn open_front(config: &Config, store: &Store, changes: &Changes, door: Option<Arc<Door>>, place: &Place) -> Result<Arc<FrontRoom>, Problem> {
    let called = place.called();
    let found = Found { host: Box::new(move || called()), addresses: Box::new(status::own_addresses) };
    let folder = matches!(config.listen, Listen::Systemd).then(|| config.state_dir.join("tls"));
    let door = door.map(|door| door as Arc<dyn PlainDoor>);
    FrontRoom::open(store.clone(), changes.clone(), found, config.host_names.clone(), folder, door).await
}

fn engines(config: &Config, changes: &Changes) -> Result<Arc<dyn Engines>, Problem> {
    Ok(match config.profile {
        Profile::Dev => ProcessEngines::new(
            ProcessConfig { engines_dir: config.engines_dir.clone(), runtime_dir: config.runtime_dir.clone(), log_dir: config.data_dir.join("logs") },
            changes.clone(),
        )?,
        Profile::Appliance => SystemdEngines::new(
            SystemdConfig {
                packs_dir: config.data_dir.join("packs"),
                launch_dir: "/run/warden/launch".into(),
                engine_runtime_dir: "/run/warden-engine".into(),
            },
            changes.clone(),
        ),
    })
}

/// Says that it is ready, and on standard output, after everything the start had to say, where the console is; on the appliance the
/// local screen does that.
async fn announce(config: &Config, source: &StatusSource) {
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    tracing::info!(version = source.version, "ready");
    if config.profile != Profile::Dev {
        return;
    }
    if let Listen::Address(address) = &config.listen {
        println!("Console: {}", status::url(address.ip(), source.port, source.encrypted));
    }
    match source.accounts.claim_code().await {
        Ok(Some(code)) => println!("Claim code: {}", code.expose()),
        Ok(None) => println!("Already claimed: sign in with the admin account made before."),
        Err(problem) => eprintln!("The claim code cannot be read: {}", problem.full_text()),
    }
    println!("(`make where` in another terminal says both again.)");
}

/// Tells systemd's watchdog that the runtime still turns.
async fn pet_watchdog() {
    let Some(period) = sd_notify::watchdog_enabled() else { return };
    let mut tick = tokio::time::interval(period / 3);
    loop {
        tick.tick().await;
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
    }
}

async fn wait_for_end() -> Result<(), Problem> {
    let broken = |cause: std::io::Error| Problem::internal(format!("signals cannot be received: {cause}."));
    let mut term = signal(SignalKind::terminate()).map_err(broken)?;
    let mut int = signal(SignalKind::interrupt()).map_err(broken)?;
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

fn make_dir(dir: &Path) -> Result<(), Problem> {
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o750).create(dir).map_err(|cause| {
        let problem = Problem::from_io(&format!("making the folder {}", dir.display()), &cause);
        if problem.hint.is_some() { problem } else { problem.hint("Check state_dir, data_dir and runtime_dir in the configuration.") }
    })
}
