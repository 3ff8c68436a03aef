//! The control API: `/api/*` and `/healthz`. One file per resource; each call has its OpenAPI entry beside its handler.
//!
//! In: requests that passed `warden_access::http::protect`. Out: JSON. Knows no SQL, no D-Bus, no engine: only the ports of the domain.

mod alerts;
mod body;
mod chat;
mod downloads;
mod events;
mod evidence;
mod front;
mod gpus;
mod health;
mod hub;
mod issues;
mod model_settings;
mod model_state;
mod models;
mod network;
mod openapi;
mod packs;
mod recovery;
mod replicas;
mod roles;
mod routing;
mod session;
mod setup;
mod storage;
mod system;
mod tasks;
mod time;
mod tokens;
mod updates;

use std::sync::Arc;

use axum::{
    Router,
    extract::OriginalUri,
    http::Method,
    response::{IntoResponse, Response},
    routing::{any, get},
};
use utoipa_axum::{router::OpenApiRouter, routes};
use warden_access::http::ProblemResponse;
use warden_domain::{
    Problem, ProblemKind,
    access::Accounts,
    alert::Alerts,
    change::Changes,
    download::Downloads,
    engine::Engines,
    front::Front,
    gpu::Gpus,
    hub::Hub,
    issue::Issues,
    key::Keys,
    machine::Machine,
    model::Registry,
    names::Names,
    network::Network,
    recovery::{Audit, Recovery},
    replica::Serving,
    routing::Routing,
    storage::{Imports, ModelDisks, Storage},
    tasks::Tasks,
    time::Time,
    update::Updates,
};
use warden_gateway::Gateway;

pub use updates::{UpdateDocument, update_document};

/// The ports the API works through.
#[derive(Clone)]
pub struct ApiParts {
    /// Accounts and sessions.
    pub accounts: Arc<dyn Accounts>,
    /// The password reset.
    pub recovery: Arc<dyn Recovery>,
    /// The record of deeds.
    pub audit: Arc<dyn Audit>,
    /// Power and resets of the machine.
    pub machine: Arc<dyn Machine>,
    /// Inference keys.
    pub keys: Arc<dyn Keys>,
    /// Registered models.
    pub registry: Arc<dyn Registry>,
    /// What runs.
    pub serving: Arc<dyn Serving>,
    /// Where requests go.
    pub routing: Arc<dyn Routing>,
    /// Engines installed.
    pub engines: Arc<dyn Engines>,
    /// GPU cards.
    pub gpus: Arc<dyn Gpus>,
    /// What is wrong with the box.
    pub issues: Arc<dyn Issues>,
    /// Who is told of it.
    pub alerts: Arc<dyn Alerts>,
    /// Certificate, names, plain port.
    pub front: Arc<dyn Front>,
    /// Disks.
    pub storage: Arc<dyn Storage>,
    /// Which models' disks are there.
    pub disks: Arc<dyn ModelDisks>,
    /// Imports from sticks.
    pub imports: Arc<dyn Imports>,
    /// Repositories of models.
    pub hub: Arc<dyn Hub>,
    /// Downloads from them.
    pub downloads: Arc<dyn Downloads>,
    /// Long work.
    pub tasks: Tasks,
    /// Updates.
    pub updates: Arc<dyn Updates>,
    /// News for event streams.
    pub changes: Changes,
    /// For the console's own chat.
    pub gateway: Arc<Gateway>,
    /// Wired ports.
    pub network: Arc<dyn Network>,
    /// The name of the box.
    pub names: Arc<dyn Names>,
    /// Its clock.
    pub time: Arc<dyn Time>,
    /// Version of the agent.
    pub version: &'static str,
}

/// All routes of the control API. Wrap them in `warden_access::http::protect`.
pub fn router(parts: ApiParts) -> Router {
    let (router, description) = OpenApiRouter::with_openapi(openapi::base(parts.version))
        .routes(routes!(health::healthz))
        .routes(routes!(setup::state))
        .routes(routes!(setup::claim))
        .routes(routes!(session::login))
        .routes(routes!(session::logout))
        .routes(routes!(session::who))
        .routes(routes!(session::csrf))
        .routes(routes!(recovery::state, recovery::reset))
        .routes(routes!(system::show))
        .routes(routes!(system::reboot))
        .routes(routes!(system::power_off))
        .routes(routes!(system::factory_reset))
        .routes(routes!(gpus::show))
        .routes(routes!(models::list, models::register))
        .routes(routes!(models::candidates))
        .routes(routes!(hub::discover))
        .routes(routes!(hub::fit))
        .routes(routes!(hub::show, hub::configure))
        .routes(routes!(downloads::list, downloads::begin))
        .routes(routes!(downloads::show, downloads::cancel))
        .routes(routes!(downloads::pause))
        .routes(routes!(downloads::resume))
        .routes(routes!(models::show, models::remove))
        .routes(routes!(models::load))
        .routes(routes!(models::unload))
        .routes(routes!(models::logs))
        .routes(routes!(replicas::drain))
        .routes(routes!(evidence::list))
        .routes(routes!(evidence::file))
        .routes(routes!(routing::show))
        .routes(routes!(model_settings::show, model_settings::change))
        .routes(routes!(model_settings::reload))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::show, tokens::revoke))
        .routes(routes!(packs::list))
        .routes(routes!(issues::list))
        .routes(routes!(issues::check))
        .routes(routes!(issues::fix))
        .routes(routes!(issues::dismiss, issues::recall))
        .routes(routes!(alerts::show, alerts::set))
        .routes(routes!(alerts::test))
        .routes(routes!(front::show, front::configure))
        .routes(routes!(storage::show))
        .routes(routes!(storage::adopt))
        .routes(routes!(storage::forget))
        .routes(routes!(storage::source))
        .routes(routes!(storage::import))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::show))
        .routes(routes!(tasks::cancel))
        .routes(routes!(updates::show, updates::configure))
        .routes(routes!(updates::check))
        .routes(routes!(updates::install))
        .routes(routes!(updates::restart))
        .routes(routes!(updates::cancel))
        .routes(routes!(updates::go_back))
        .routes(routes!(updates::open_upload))
        .routes(routes!(updates::show_upload, updates::put_upload, updates::drop_upload))
        .routes(routes!(updates::take_upload))
        .routes(routes!(updates::take_from_stick))
        .routes(routes!(chat::complete))
        .routes(routes!(events::stream))
        .routes(routes!(network::show))
        .routes(routes!(network::change))
        .routes(routes!(network::confirm))
        .routes(routes!(network::undo))
        .routes(routes!(network::set_hostname))
        .routes(routes!(time::show, time::configure))
        .routes(routes!(time::set_clock))
        .split_for_parts();
    let text: Arc<str> = openapi::written(&description).into();
    router
        .route("/api/openapi.json", get(move |signed_in| openapi::serve(signed_in, text)))
        .route("/api", any(unknown))
        .route("/api/{*rest}", any(unknown))
        .method_not_allowed_fallback(wrong_method)
        .with_state(parts)
}

async fn unknown(OriginalUri(uri): OriginalUri) -> Response {
    let problem =
        Problem::new(ProblemKind::NotFound, format!("There is no {} in this API.", uri.path())).hint("GET /api/openapi.json lists every call.");
    ProblemResponse(problem).into_response()
}

async fn wrong_method(method: Method, OriginalUri(uri): OriginalUri) -> Response {
    let problem = Problem::new(ProblemKind::MethodNotAllowed, format!("{} does not take {method}.", uri.path()))
        .hint("The Allow header and GET /api/openapi.json say which methods it takes.");
    ProblemResponse(problem).into_response()
}
