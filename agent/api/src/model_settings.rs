//! Settings of a model, and the reload that makes an engine take them.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::{
    Problem,
    ids::{GpuId, ModelId},
    model::{Model, ModelChange, RunawayGuard},
    replica::Reload,
    units::Tokens,
};

use crate::{
    ApiParts,
    body::JsonBody,
    models::{ModelDocument, one},
    openapi::ErrorBody,
    roles::{self, Change},
};

/// What can be changed of a model.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelSettings {
    /// Context window per request; `null` = from the file.
    context: Option<u64>,
    /// Requests at the same time, of each replica.
    slots: u16,
    /// Engines of the model beside each other.
    replicas: u16,
    /// Ids of cards, in order; each replica takes the same number of them. Empty: processors.
    gpus: Vec<String>,
    /// More arguments for the engine, in its own spelling.
    extra_args: Vec<String>,
    /// A request for the model loads it while it is stopped.
    load_on_request: bool,
    /// Code that lies beside the model may run in its engine. Set it only for a model whose maker you trust.
    trust_remote_code: bool,
    /// What is done about an answer that repeats itself, never stops thinking, or never ends: `off`, `log` (it is counted in
    /// `dp-routing` and noted in the log) or `enforce` (it is ended as if it had come to its limit of tokens).
    runaway_guard: &'static str,
    /// When these settings count: `now` (what runs has them), `next_load` (nothing runs) or `reload` (what runs has older ones).
    takes_effect: &'static str,
}

/// Settings to change; what is absent stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingsBody {
    /// Context window per request; `null` = from the file.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<u64>)]
    context: Option<Option<u64>>,
    /// Requests at the same time, of each replica, 1 to 64.
    slots: Option<u16>,
    /// Engines beside each other, 1 to 16.
    replicas: Option<u16>,
    /// Ids of cards, in order; the same number for each replica.
    gpus: Option<Vec<String>>,
    /// More arguments for the engine.
    extra_args: Option<Vec<String>>,
    /// Whether a request for the model loads it while it is stopped; counts at once.
    load_on_request: Option<bool>,
    /// Whether code that lies beside the model may run in its engine. Only an administrator who is signed in may set it, and only for an
    /// engine that can run such code (vLLM).
    trust_remote_code: Option<bool>,
    /// `off`, `log` or `enforce`; counts at once, for answers that begin from then on.
    runaway_guard: Option<String>,
}

/// Tells `null` from a field that is not there.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// How a reload goes, and the model.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReloadAnswer {
    /// `rolling` (one replica after the other, the others serve) or `restart` (nothing serves meanwhile).
    how: &'static str,
    /// Why it is no rolling one; `null` when it is.
    why: Option<String>,
    model: ModelDocument,
}

fn settings(parts: &ApiParts, model: Model) -> ModelSettings {
    let states = parts.serving.states();
    let loaded = states.get(&model.id).and_then(|state| state.loaded.as_ref());
    let takes_effect = match loaded {
        None => "next_load",
        Some(loaded) if loaded.runs_as(&model.config) => "now",
        Some(_) => "reload",
    };
    let layout = model.config.layout;
    ModelSettings {
        context: model.config.context.map(|tokens| tokens.0),
        slots: model.config.slots,
        replicas: layout.replicas,
        gpus: layout.gpus.iter().map(ToString::to_string).collect(),
        extra_args: layout.extra_args,
        load_on_request: layout.on_request,
        trust_remote_code: layout.trust_remote_code,
        runaway_guard: layout.runaway.as_str(),
        takes_effect,
    }
}

/// The settings of a model.
#[utoipa::path(get, path = "/api/models/{id}/settings", tag = "models", params(("id" = String, Path)), responses(
    (status = 200, body = ModelSettings), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn, Path(id): Path<String>) -> Result<Json<ModelSettings>, ProblemResponse> {
    let model = parts.registry.get(&ModelId::from_stored(id)).await?;
    Ok(Json(settings(&parts, model)))
}

/// Changes settings, all or none. What runs keeps the old ones until it is reloaded.
#[utoipa::path(patch, path = "/api/models/{id}/settings", tag = "models", params(("id" = String, Path)), request_body = SettingsBody, responses(
    (status = 200, body = ModelSettings),
    (status = 403, description = "`forbidden`: not an administrator, or `trust_remote_code` without being signed in", body = ErrorBody),
    (status = 404, description = "`not_found`", body = ErrorBody),
    (status = 422, description = "`invalid_value` with the field", body = ErrorBody)))]
pub async fn change(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
    JsonBody(body): JsonBody<SettingsBody>,
) -> Result<Json<ModelSettings>, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let id = ModelId::from_stored(id);
    if let Some(arguments) = &body.extra_args {
        let engine = parts.registry.get(&id).await?.config.engine;
        parts.engines.check_arguments(engine, arguments)?;
    }
    if body.trust_remote_code == Some(true) {
        roles::require_session(&principal, "trust_remote_code")?;
        let model = parts.registry.get(&id).await?;
        model.config.engine.check_trust()?;
        tracing::warn!(model = %id, by = %principal.username, "code that lies beside a model may run");
    }
    let change = ModelChange {
        context: body.context.map(|context| context.map(Tokens)),
        slots: body.slots,
        replicas: body.replicas,
        gpus: body.gpus.map(cards),
        extra_args: body.extra_args,
        on_request: body.load_on_request,
        trust_remote_code: body.trust_remote_code,
        runaway: body.runaway_guard.as_deref().map(RunawayGuard::from_word).transpose()?,
    };
    let model = parts.registry.change(&id, change).await?;
    parts.serving.caught_up().await;
    Ok(Json(settings(&parts, model)))
}

/// Ids of cards as they came.
pub(crate) fn cards(ids: Vec<String>) -> Vec<GpuId> {
    ids.into_iter().map(GpuId::from_stored).collect()
}

/// Starts the engines of a model anew with its settings of now. Each finishes its requests first (up to 30 s).
#[utoipa::path(post, path = "/api/models/{id}/reload", tag = "models", params(("id" = String, Path)), responses(
    (status = 202, body = ReloadAnswer),
    (status = 404, description = "`not_found`", body = ErrorBody),
    (status = 409, description = "`conflict`: not running, a reload is under way, or another model has its cards", body = ErrorBody),
    (status = 422, description = "`bad_model_file` or `invalid_value`", body = ErrorBody)))]
pub async fn reload(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<ReloadAnswer>), ProblemResponse> {
    roles::require(&principal, Change::Run)?;
    let id = ModelId::from_stored(id);
    let way: Result<Reload, Problem> = parts.serving.reload(&id).await;
    let (how, why) = match way? {
        Reload::Rolling => ("rolling", None),
        Reload::Restart { why } => ("restart", Some(why)),
    };
    Ok((StatusCode::ACCEPTED, Json(ReloadAnswer { how, why, model: one(&parts, &id).await? })))
}
