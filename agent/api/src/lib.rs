//! The control API: `/api/*` and `/healthz`. One file per resource; each call has its OpenAPI entry beside its handler.
//!
//! In: requests that passed `warden_access::http::protect`. Out: JSON. Knows no SQL, no D-Bus, no engine: only the ports of the domain.

mod body;
mod chat;
mod events;
mod front;
mod health;
mod models;
mod openapi;
mod packs;
mod roles;
mod session;
mod setup;
mod tokens;

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
    Problem, ProblemKind, access::Accounts, change::Changes, engine::Engines, front::Front, key::Keys, model::Registry, replica::Serving,
};
use warden_gateway::Gateway;

/// The ports the API works through.
#[derive(Clone)]
pub struct ApiParts {
    /// Accounts and sessions.
    pub accounts: Arc<dyn Accounts>,
    /// Inference keys.
    pub keys: Arc<dyn Keys>,
    /// Registered models.
    pub registry: Arc<dyn Registry>,
    /// What runs.
    pub serving: Arc<dyn Serving>,
    /// Engines installed.
    pub engines: Arc<dyn Engines>,
    /// Certificate, names, plain port.
    pub front: Arc<dyn Front>,
    /// News for event streams.
    pub changes: Changes,
    /// For the console's own chat.
    pub gateway: Arc<Gateway>,
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
        .routes(routes!(models::list, models::register))
        .routes(routes!(models::candidates))
        .routes(routes!(models::show, models::remove))
        .routes(routes!(models::load))
        .routes(routes!(models::unload))
        .routes(routes!(models::logs))
        .routes(routes!(tokens::list, tokens::create))
        .routes(routes!(tokens::show, tokens::revoke))
        .routes(routes!(packs::list))
        .routes(routes!(front::show, front::configure))
        .routes(routes!(chat::complete))
        .routes(routes!(events::stream))
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
