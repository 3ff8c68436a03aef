//! The console: server-rendered pages, live fragments and embedded assets.
//!
//! In: the ports of `domain`, and requests that passed `warden_access::http::protect`. Out: HTML under `/ui/`, assets under
//! `/ui/assets/<hash>/`, and a stream of changed fragments under `/ui/live/`. Every action on a page calls the same port as its twin
//! under `/api`. This crate never opens a file or a database, never talks to an engine, and never sends a script or style inside a page.

mod ask;
mod assets;
mod catalogue;
mod chat;
mod engines;
mod field;
mod front;
mod home;
mod keys;
mod kit;
mod live;
mod login;
mod look;
mod model;
mod models;
mod needs;
mod refusal;
mod respond;
mod setup;
mod shell;
mod visit;
mod wording;

use std::sync::Arc;

use axum::{
    Router, middleware,
    routing::{get, post},
};
use warden_domain::{
    access::Accounts,
    change::Changes,
    engine::Engines,
    front::Front,
    key::Keys,
    model::Registry,
    replica::{InFlight, Serving},
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
    /// Inference keys.
    pub keys: Arc<dyn Keys>,
    /// Registered models.
    pub registry: Arc<dyn Registry>,
    /// States, load and unload.
    pub serving: Arc<dyn Serving>,
    /// Engine packs.
    pub engines: Arc<dyn Engines>,
    /// Requests in flight, for the strip and for what an unload would stop.
    pub flights: Arc<dyn InFlight>,
    /// Certificate, names, plain port.
    pub front: Arc<dyn Front>,
    /// News that make live fragments move.
    pub changes: Changes,
    /// Version of the agent.
    pub version: &'static str,
    /// Name of this box, as people see it in the strip.
    pub box_name: String,
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
        .route("/ui/logout", post(login::leave))
        .route("/ui/look", post(look::choose))
        .route("/ui/setup", get(setup::claim::page).post(setup::claim::submit))
        .route("/ui/setup/model", get(setup::model::page).post(setup::model::submit))
        .route("/ui/setup/model/{id}", get(setup::load::page))
        .route("/ui/setup/finish/{id}", post(setup::done::submit))
        .route("/ui/setup/done", get(setup::done::page))
        .route("/ui/models", get(models::list::page).post(models::new::submit))
        .route("/ui/models/new", get(models::new::page))
        .route("/ui/models/{id}", get(models::detail::page))
        .route("/ui/models/{id}/load", post(models::act::load))
        .route("/ui/models/{id}/unload", get(models::act::ask_unload).post(models::act::unload))
        .route("/ui/models/{id}/remove", get(models::act::ask_remove).post(models::act::remove))
        .route("/ui/keys", get(keys::page).post(keys::create))
        .route("/ui/keys/new", get(keys::new))
        .route("/ui/keys/{id}/revoke", get(keys::ask_revoke).post(keys::revoke))
        .route("/ui/tls", get(front::page).post(front::submit))
        .route("/ui/tls/ca.crt", get(front::authority))
        .route("/ui/chat", get(chat::page))
        .route("/ui/live/home", get(live::home))
        .route("/ui/live/models", get(live::models))
        .route("/ui/live/models/{id}", get(live::model))
        .route("/ui/live/setup/{id}", get(live::setup))
        .route("/ui/live/keys", get(live::keys))
        .route("/ui/live/tls", get(live::tls))
        .route("/ui/live/strip", get(live::strip))
        .route("/ui/assets/{hash}/{name}", get(assets::serve));
    if dev {
        router = router.route("/ui/kit", get(kit::page)).route("/ui/kit/dialog", get(kit::dialog).post(kit::close));
    }
    router
        .method_not_allowed_fallback(respond::wrong_method)
        .fallback(respond::not_found)
        .layer(middleware::from_fn(respond::with_headers))
        .with_state(Arc::new(parts))
}
