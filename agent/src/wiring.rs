//! Start order and shutdown: makes the rooms, joins them through their ports, serves, and takes everything down in order.
//!
//! No decision of any room is made here.

use std::{net::IpAddr, os::unix::fs::DirBuilderExt, path::Path, sync::Arc, time::Duration};

use axum::Router;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tower_http::{catch_panic::CatchPanicLayer, trace::TraceLayer};
use warden_access::{Access, http::HostRules};
use warden_domain::{
    Problem,
    change::Changes,
    engine::Engines,
    front::{Front, PlainDoor},
    machine::{Machine, NotOurs},
    model::StateWord,
    names::Names,
    replica::Serving,
    tasks::Tasks,
};
use warden_engines::{ProcessConfig, ProcessEngines, SystemdConfig, SystemdEngines};
use warden_gateway::{FlightTable, Gateway, GatewayLimits, GatewayParts};
use warden_models::{Models, ModelsConfig};
use warden_monitor::{Appliance, Monitor, MonitorParts};
use warden_platform::{
    ApplianceMachine,
    bus::Bus,
    names::NamesRoom,
    network::{NetworkParts, NetworkRoom},
    time::TimeRoom,
};
use warden_serving::{ServingParts, ServingRoom};
use warden_store::Store;
use warden_tls::{Found, FrontRoom};
use warden_updater::UpdateRoom;

use crate::{
    admin_reset, claim_folders,
    config::{Config, Listen, Profile},
    console_socket,
    disks::Disks,
    ending, listeners,
    local_updates::LocalUpdates,
    plain_door::Door,
    redirect, seed,
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
    let flights = FlightTable::new();
    let serving = ServingRoom::start(ServingParts {
        store: store.clone(),
        registry: models.clone(),
        engines: engines.clone(),
        flights: flights.clone(),
        changes: changes.clone(),
    })
    .await?;
    let runs = serving.clone();
    models.set_in_use(move |id| runs.states().get(id).is_some_and(|s| !matches!(s.state, StateWord::Stopped | StateWord::Failed)));
    let gateway = Gateway::new(
        GatewayParts { keys: access.clone(), serving: serving.clone(), ledger: ledger.clone(), flights: flights.clone() },
        GatewayLimits::default(),
    );

    let main = sockets.iter().find(|socket| socket.spoken != Spoken::Redirect);
    let address = main.and_then(|socket| socket.listener.local_addr().ok());
    let loopback_only = address.is_some_and(|a| a.ip().is_loopback());
    let (port, encrypted) = (address.map_or(8080, |a| a.port()), main.is_some_and(|socket| socket.spoken == Spoken::Tls));
    let place = place(&config, &store, &changes, port, encrypted);
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
        more_checks: updates.checks(),
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
    let router = router(
        &config, &access, &machine, &models, &serving, &engines, &monitor, &changes, &gateway, &flights, &place, &front, &disks, &updates, version,
    );
    let (ender, end) = ending::ending();
    let mut servers = JoinSet::new();
    for Socket { listener, spoken } in sockets {
        let (router, tls) = match spoken {
            Spoken::Plain => (router.clone(), None),
            Spoken::Redirect => (redirect::router(front.clone(), hosts(&front)), None),
            Spoken::Tls if tls.is_none() => return Err(Problem::internal("There is an encrypted port but no certificate for it.")),
            Spoken::Tls => (router.clone(), tls.clone()),
        };
        servers.spawn(listeners::serve_tcp(listener, router, tls, end.clone()));
    }
    if let Some(door) = &door {
        let (router, end) = (router.clone(), end.clone());
        door.serve_with(Box::new(move |listener, stop| tokio::spawn(listeners::serve_tcp(listener, router.clone(), None, end.stopped_by(stop)))));
    }
    if let Some(door) = door.as_ref().filter(|_| !front.config().plain_http) {
        door.forget_unwanted().await;
    }
    let front_watch = front.watch();
    let local = LocalUpdates { updates: updates.clone(), tasks: tasks.clone(), gateway: gateway.clone() };
    let console = console_socket::open(&config.runtime_dir)?;
    servers.spawn(listeners::serve_unix(console, console_socket::router(source.clone(), local), end.clone()));
    updates.start();
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
    gateway.drain(config.drain).await;
    // What is still open now are pages' event streams and idle connections.
    tokio::time::sleep(Duration::from_millis(200)).await;
    ender.cut();
    while servers.join_next().await.is_some() {}
    watchdog.abort();
    serving.shutdown(config.stop_engines_on_exit).await;
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

/// Which Host headers are answered.
fn hosts(front: &Arc<FrontRoom>) -> HostRules {
    let front = Arc::clone(front);
    HostRules {
        own_names: Arc::new(move |name| front.is_own_name(name)),
        any_loopback: true,
        own_addresses: Arc::new(|ip: IpAddr| ip.is_loopback() || status::own_addresses().contains(&ip)),
    }
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

/// The box's place on a network: ports, name, clock.
struct Place {
    bus: Arc<Bus>,
    network: Arc<NetworkRoom>,
    names: Arc<NamesRoom>,
    time: Arc<TimeRoom>,
}

impl Place {
    /// What the system calls the box. The agent's unit has a name space of its own, so that its kernel's answer would be the one of its
    /// start.
    fn called(&self) -> Arc<dyn Fn() -> String + Send + Sync> {
        let names = self.names.clone();
        Arc::new(move || names.present())
    }
}

fn place(config: &Config, store: &Store, changes: &Changes, port: u16, encrypted: bool) -> Place {
    let bus = Arc::new(Bus::default());
    Place {
        network: NetworkRoom::start(NetworkParts {
            bus: bus.clone(),
            store: store.clone(),
            changes: changes.clone(),
            state_dir: config.state_dir.clone(),
            console_url: Arc::new(move |ip| status::url(ip, port, encrypted)),
        }),
        names: NamesRoom::start(bus.clone(), store.clone(), changes.clone(), status::host_name()),
        time: TimeRoom::start(bus.clone(), store.clone(), changes.clone()),
        bus,
    }
}

#[allow(clippy::too_many_arguments, reason = "wiring names every room once")]
fn router(
    config: &Config,
    access: &Arc<Access>,
    machine: &Arc<dyn Machine>,
    models: &Arc<Models>,
    serving: &Arc<ServingRoom>,
    engines: &Arc<dyn Engines>,
    monitor: &Arc<Monitor>,
    changes: &Changes,
    gateway: &Arc<Gateway>,
    flights: &Arc<FlightTable>,
    place: &Place,
    front: &Arc<FrontRoom>,
    disks: &Disks,
    updates: &Arc<UpdateRoom>,
    version: &'static str,
) -> Router {
    let api = warden_api::router(warden_api::ApiParts {
        accounts: access.clone(),
        recovery: access.clone(),
        audit: access.clone(),
        machine: machine.clone(),
        keys: access.clone(),
        registry: models.clone(),
        serving: serving.clone(),
        engines: engines.clone(),
        issues: monitor.clone(),
        alerts: monitor.clone(),
        front: front.clone(),
        storage: disks.storage.clone(),
        disks: disks.disks.clone(),
        imports: disks.imports.clone(),
        tasks: disks.tasks.clone(),
        updates: updates.clone(),
        changes: changes.clone(),
        gateway: gateway.clone(),
        network: place.network.clone(),
        names: place.names.clone(),
        time: place.time.clone(),
        version,
    });
    let web = warden_web::router(warden_web::WebParts {
        accounts: access.clone(),
        recovery: access.clone(),
        audit: access.clone(),
        machine: machine.clone(),
        keys: access.clone(),
        registry: models.clone(),
        serving: serving.clone(),
        engines: engines.clone(),
        storage: disks.storage.clone(),
        disks: disks.disks.clone(),
        imports: disks.imports.clone(),
        tasks: disks.tasks.clone(),
        updates: updates.clone(),
        flights: flights.clone(),
        issues: monitor.clone(),
        alerts: monitor.clone(),
        front: front.clone(),
        changes: changes.clone(),
        version,
        network: place.network.clone(),
        names: place.names.clone(),
        time: place.time.clone(),
        dev: cfg!(debug_assertions),
        profile: match config.profile {
            Profile::Dev => warden_web::Profile::Dev,
            Profile::Appliance => warden_web::Profile::Appliance,
        },
    });
    let console = warden_access::http::protect(api.merge(web), access.clone(), hosts(front));
    Router::new().merge(gateway.router()).merge(console).layer(CatchPanicLayer::custom(panicked)).layer(TraceLayer::new_for_http())
}

/// A panic is a defect of ours; the caller still gets a sentence and the process goes on.
fn panicked(_: Box<dyn std::any::Any + Send>) -> axum::response::Response {
    let body =
        r#"{"detail":{"error_code":"internal","message":"The agent hit a fault of its own while answering; it goes on. The log has the details."}}"#;
    let mut response = axum::response::Response::new(axum::body::Body::from(body));
    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

/// Says on standard output where the console is; on the appliance the local screen does that.
async fn announce(config: &Config, source: &StatusSource) {
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    if config.profile == Profile::Dev {
        if let Listen::Address(address) = &config.listen {
            println!("Console: {}", status::url(address.ip(), source.port, source.encrypted));
        }
        match source.accounts.claim_code().await {
            Ok(Some(code)) => println!("Claim code: {}", code.expose()),
            Ok(None) => println!("Already claimed: sign in with the admin account made before."),
            Err(problem) => eprintln!("The claim code cannot be read: {}", problem.full_text()),
        }
    }
    tracing::info!(version = source.version, "ready");
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
