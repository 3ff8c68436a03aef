//! The console: server-rendered pages, live fragments and embedded assets.
//!
//! In: the ports of `domain`, and requests that passed `warden_access::http::protect`. Out: HTML under `/ui/`, assets under
//! `/ui/assets/<hash>/`, and a stream of changed fragments under `/ui/live/`. Every action on a page calls the same port as its twin
//! under `/api`. This crate never opens a file or a database, never talks to an engine, and never sends a script or style inside a page.

mod alerts;
mod ask;
mod assets;
mod catalogue;
mod chat;
mod engines;
mod field;
mod front;
mod gpus;
mod home;
mod intake;
mod issues;
mod keys;
mod kit;
mod live;
mod login;
mod look;
mod model;
mod models;
mod needs;
mod network;
mod refusal;
mod reset;
mod respond;
mod setup;
mod shell;
mod storage;
mod system;
mod updates;
mod visit;
mod wording;

use std::sync::Arc;

use axum::{
    Router, middleware,
    routing::{get, post},
};
use warden_domain::{
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
    replica::{InFlight, Serving},
    routing::Routing,
    storage::{Imports, ModelDisks, Storage},
    tasks::Tasks,
    time::Time,
    update::Updates,
};

pub use front::fingerprint_page;

/// What the agent runs as; decides what the pages may claim about the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A development machine (`make run`).
    Dev,
    /// The appliance image.
    Appliance,
}

/// Everything the pages are made from.
#[derive(Clone)]
pub struct WebParts {
    /// Accounts, claim and sessions.
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
    /// States, load and unload.
    pub serving: Arc<dyn Serving>,
    /// Where requests go.
    pub routing: Arc<dyn Routing>,
    /// Engine packs.
    pub engines: Arc<dyn Engines>,
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
    /// Requests in flight, for the strip and for what an unload would stop.
    pub flights: Arc<dyn InFlight>,
    /// GPU cards.
    pub gpus: Arc<dyn Gpus>,
    /// What is wrong with the box.
    pub issues: Arc<dyn Issues>,
    /// Who is told of it.
    pub alerts: Arc<dyn Alerts>,
    /// Certificate, names, plain port.
    pub front: Arc<dyn Front>,
    /// News that make live fragments move.
    pub changes: Changes,
    /// Version of the agent.
    pub version: &'static str,
    /// Wired ports.
    pub network: Arc<dyn Network>,
    /// The name of this box, as people see it in the strip.
    pub names: Arc<dyn Names>,
    /// Its clock.
    pub time: Arc<dyn Time>,
    /// Where it runs.
    pub profile: Profile,
    /// True in development builds: `/ui/kit` is there.
    pub dev: bool,
}

/// Pages shared by all handlers.
pub(crate) type Web = Arc<WebParts>;

/// All pages: `/`, `/ui/…` and the assets. Put `warden_access::http::protect` around it.
pub fn router(parts: WebParts) -> Router {
    let dev = parts.dev;
    let mut router = Router::new()
        .route("/", get(respond::to_start))
        .route("/ui", get(respond::to_start))
        .route("/ui/", get(home::page))
        .route("/ui/login", get(login::page).post(login::submit))
        .route("/ui/login/reset", get(reset::page).post(reset::submit))
        .route("/ui/logout", post(login::leave))
        .route("/ui/look", post(look::choose))
        .route("/ui/setup", get(setup::claim::page).post(setup::claim::submit))
        .route("/ui/setup/model", get(setup::model::page).post(setup::model::submit))
        .route("/ui/setup/model/{id}", get(setup::load::page))
        .route("/ui/setup/finish/{id}", post(setup::done::submit))
        .route("/ui/setup/done", get(setup::done::page))
        .route("/ui/models", get(models::list::page).post(models::new::submit))
        .route("/ui/models/new", get(models::new::page))
        .route("/ui/models/hub", get(models::hub::page))
        .route("/ui/models/hub/choice", get(models::choice::page).post(models::choice::submit))
        .route("/ui/models/hub/settings", get(models::hub_settings::page).post(models::hub_settings::submit))
        .route("/ui/models/downloads/{id}/pause", post(models::downloads::pause))
        .route("/ui/models/downloads/{id}/resume", post(models::downloads::resume))
        .route("/ui/models/downloads/{id}/cancel", get(models::downloads::ask_cancel).post(models::downloads::cancel))
        .route("/ui/models/{id}", get(models::detail::page))
        .route("/ui/models/{id}/load", post(models::act::load))
        .route("/ui/models/{id}/unload", get(models::act::ask_unload).post(models::act::unload))
        .route("/ui/models/{id}/reload", get(models::act::ask_reload).post(models::act::reload))
        .route("/ui/models/{id}/replicas/{number}/drain", get(models::act::ask_drain).post(models::act::drain))
        .route("/ui/models/{id}/settings", get(models::settings::page).post(models::settings::submit))
        .route("/ui/models/{id}/remove", get(models::act::ask_remove).post(models::act::remove))
        .route("/ui/keys", get(keys::page).post(keys::create))
        .route("/ui/keys/new", get(keys::new))
        .route("/ui/keys/{id}/revoke", get(keys::ask_revoke).post(keys::revoke))
        .route("/ui/tls", get(front::page).post(front::submit))
        .route("/ui/tls/ca.crt", get(front::authority))
        .route("/ui/chat", get(chat::page))
        .route("/ui/gpus", get(gpus::page))
        .route("/ui/live/gpus", get(live::gpus))
        .route("/ui/network", get(network::page))
        .route("/ui/network/confirm", get(network::confirm::page).post(network::confirm::submit))
        .route("/ui/network/undo", post(network::port::undo))
        .route("/ui/network/name", post(network::host::name))
        .route("/ui/network/time", post(network::host::source))
        .route("/ui/network/clock", post(network::host::clock))
        .route("/ui/network/{port}", get(network::port::page).post(network::port::apply))
        .route("/ui/network/{port}/plan", post(network::port::plan))
        .route("/ui/live/network", get(live::network))
        .route("/ui/system", get(system::page))
        .route("/ui/system/reboot", get(system::ask_reboot).post(system::reboot))
        .route("/ui/system/power-off", get(system::ask_off).post(system::off))
        .route("/ui/system/factory-reset", get(system::ask_factory).post(system::factory))
        .route("/ui/issues", get(issues::page))
        .route("/ui/issues/check", post(issues::check))
        .route("/ui/issues/{id}/fix", post(issues::fix))
        .route("/ui/issues/{id}/dismiss", get(issues::ask_dismiss).post(issues::dismiss))
        .route("/ui/issues/{id}/recall", post(issues::recall))
        .route("/ui/alerts", get(alerts::page).post(alerts::save))
        .route("/ui/alerts/test", post(alerts::test))
        .route("/ui/storage", get(storage::list::page))
        .route("/ui/storage/disks/{key}/adopt", get(storage::adopt::ask).post(storage::adopt::submit))
        .route("/ui/storage/volumes/{id}/forget", get(storage::adopt::ask_forget).post(storage::adopt::forget))
        .route("/ui/storage/sources/{key}", get(storage::import::page).post(storage::import::submit))
        .route("/ui/storage/tasks/{id}/cancel", post(storage::import::cancel))
        .route("/ui/live/storage", get(live::storage))
        .route("/ui/updates", get(updates::page).post(updates::act::save))
        .route("/ui/updates/check", post(updates::act::check))
        .route("/ui/updates/continue", post(updates::act::go_on))
        .route("/ui/updates/cancel", post(updates::act::cancel))
        .route("/ui/updates/install/{sha256}", get(updates::act::ask_install).post(updates::act::install))
        .route("/ui/updates/restart", get(updates::act::ask_restart).post(updates::act::restart))
        .route("/ui/updates/go-back", get(updates::act::ask_back).post(updates::act::back))
        .route("/ui/updates/uploads/{id}/take", post(updates::act::take))
        .route("/ui/updates/uploads/{id}/drop", post(updates::act::throw_away))
        .route("/ui/updates/sticks/{key}", post(updates::act::stick))
        .route("/ui/live/updates", get(live::updates))
        .route("/ui/live/home", get(live::home))
        .route("/ui/live/models", get(live::models))
        .route("/ui/live/models/{id}", get(live::model))
        .route("/ui/live/setup/{id}", get(live::setup))
        .route("/ui/live/keys", get(live::keys))
        .route("/ui/live/issues", get(live::issues))
        .route("/ui/live/alerts", get(live::alerts))
        .route("/ui/live/tls", get(live::tls))
        .route("/ui/live/strip", get(live::strip))
        .route("/ui/assets/{hash}/{name}", get(assets::serve));
    if dev {
        router = router.route("/ui/kit", get(kit::page)).route("/ui/kit/dialog", get(kit::dialog).post(kit::close));
    }
    router
        .method_not_allowed_fallback(respond::wrong_method)
        .fallback(respond::not_found)
        .layer(middleware::from_fn(intake::whole_forms))
        .layer(middleware::from_fn(respond::with_headers))
        .with_state(Arc::new(parts))
}
