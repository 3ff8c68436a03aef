//! Models: register, forget, load, unload, look at.

use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::{
    Problem, ProblemKind, clock,
    ids::ModelId,
    model::{Layout, Model, ModelState, NewModel, RunawayGuard, StateReason, StateWord},
    units::Tokens,
};

use crate::{
    ApiParts,
    body::JsonBody,
    model_settings,
    model_state::{self, StatePart},
    openapi::ErrorBody,
    roles::{self, Change},
};

/// A model as a document: identity, config, facts of its file, state. The flat fields are the ones older scripts read.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelDocument {
    id: String,
    /// Name clients use in `model`.
    served_model_name: String,
    /// `stopped`, `waiting`, `loading`, `running` or `failed`.
    status: &'static str,
    /// Engine kind.
    backend: &'static str,
    /// Context window per request that was asked for; `null` = from the file.
    max_model_len: Option<u64>,
    /// Why it failed or waits; `null` otherwise.
    last_error: Option<String>,
    /// Set when the disk that holds it is missing: the sentence says which.
    disk_missing: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    config: ConfigPart,
    facts: FactsPart,
    state: StatePart,
}

/// What the admin wants.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConfigPart {
    path: String,
    context: Option<u64>,
    slots: u16,
    /// Engines beside each other.
    replicas: u16,
    /// Cards, in order; empty: processors.
    gpus: Vec<String>,
    extra_args: Vec<String>,
}

/// What the file says; unknown is `null`.
#[derive(Debug, Serialize, ToSchema)]
pub struct FactsPart {
    size_bytes: u64,
    architecture: Option<String>,
    title: Option<String>,
    trained_context: Option<u64>,
    has_chat_template: Option<bool>,
}

/// All models.
#[derive(Debug, Serialize, ToSchema)]
pub struct ModelList {
    models: Vec<ModelDocument>,
}

/// Body of a registration.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewModelBody {
    /// A GGUF file or a folder with one model; absolute, or relative to the models folder.
    path: String,
    /// Name to serve it under; made from the file name when absent.
    served_model_name: Option<String>,
    /// Context window per request, in tokens.
    context: Option<u64>,
    /// Requests at the same time, 1 to 64.
    slots: Option<u16>,
    /// Engines beside each other, 1 to 16; 1 when absent.
    replicas: Option<u16>,
    /// Ids of cards, in order, the same number for each replica; processors when absent.
    gpus: Option<Vec<String>>,
    /// More arguments for the engine, in its own spelling.
    extra_args: Option<Vec<String>>,
    /// A request for the model loads it while it is stopped.
    #[serde(default)]
    load_on_request: bool,
    /// What is done about answers that run away: `off`, `log` (when absent) or `enforce`.
    runaway_guard: Option<String>,
}

/// A model file that could be registered.
#[derive(Debug, Serialize, ToSchema)]
pub struct CandidatePart {
    path: String,
    size_bytes: u64,
    suggested_name: String,
}

/// Model files that could be registered.
#[derive(Debug, Serialize, ToSchema)]
pub struct CandidateList {
    candidates: Vec<CandidatePart>,
}

/// Query of the log call.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// How many lines from the end, 1 to 5000; 200 when absent.
    lines: Option<usize>,
}

/// The engine's last log lines, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct LogLines {
    lines: Vec<String>,
}

fn document(parts: &ApiParts, model: Model, state: Option<&ModelState>) -> ModelDocument {
    let word = state.map_or(StateWord::Stopped, |s| s.state);
    let reason = state.and_then(|s| s.reason.clone());
    ModelDocument {
        id: model.id.to_string(),
        served_model_name: model.config.served_name,
        status: word.as_str(),
        backend: model.config.engine.as_str(),
        max_model_len: model.config.context.map(|t| t.0),
        last_error: reason.as_ref().map(sentence),
        disk_missing: parts.disks.absent(&model.config.path).map(|problem| problem.message),
        created_at: model.created_at,
        config: ConfigPart {
            path: model.config.path.display().to_string(),
            context: model.config.context.map(|t| t.0),
            slots: model.config.slots,
            replicas: model.config.layout.replicas,
            gpus: model.config.layout.gpus.iter().map(ToString::to_string).collect(),
            extra_args: model.config.layout.extra_args,
        },
        facts: FactsPart {
            size_bytes: model.facts.size.0,
            architecture: model.facts.architecture,
            title: model.facts.title,
            trained_context: model.facts.trained_context.map(|t| t.0),
            has_chat_template: model.facts.has_chat_template,
        },
        state: model_state::part(state, clock::now()),
    }
}

fn sentence(reason: &StateReason) -> String {
    match &reason.hint {
        Some(hint) => format!("{} {hint}", reason.message),
        None => reason.message.clone(),
    }
}

pub(crate) async fn one(parts: &ApiParts, id: &ModelId) -> Result<ModelDocument, Problem> {
    let model = parts.registry.get(id).await?;
    Ok(document(parts, model, parts.serving.states().get(id)))
}

/// All registered models, oldest first.
#[utoipa::path(get, path = "/api/models", tag = "models", responses((status = 200, body = ModelList), (status = 401, description = "`unauthorized`", body = ErrorBody)))]
pub async fn list(State(parts): State<ApiParts>, _: SignedIn) -> Result<Json<ModelList>, ProblemResponse> {
    let models = parts.registry.list().await?;
    let states = parts.serving.states();
    let models = models
        .into_iter()
        .map(|m| {
            let state = states.get(&m.id);
            document(&parts, m, state)
        })
        .collect();
    Ok(Json(ModelList { models }))
}

/// Checks a model file and registers it. Nothing is copied.
#[utoipa::path(post, path = "/api/models", tag = "models", request_body = NewModelBody, responses(
    (status = 201, body = ModelDocument),
    (status = 409, description = "`conflict`: the name is taken", body = ErrorBody),
    (status = 422, description = "`bad_model_file` or `invalid_value`", body = ErrorBody),
    (status = 507, description = "`disk_full`", body = ErrorBody)))]
pub async fn register(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(body): JsonBody<NewModelBody>,
) -> Result<(StatusCode, Json<ModelDocument>), ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let layout = Layout {
        replicas: body.replicas.unwrap_or(1),
        gpus: model_settings::cards(body.gpus.unwrap_or_default()),
        extra_args: body.extra_args.unwrap_or_default(),
        on_request: body.load_on_request,
        // Never with the registration: it is set for one model that is there, after its warning.
        trust_remote_code: false,
        runaway: body.runaway_guard.as_deref().map(RunawayGuard::from_word).transpose()?.unwrap_or_default(),
    };
    let new = NewModel { path: body.path.into(), served_name: body.served_model_name, context: body.context.map(Tokens), slots: body.slots, layout };
    let model = parts.registry.register(new).await?;
    parts.serving.caught_up().await;
    Ok((StatusCode::CREATED, Json(document(&parts, model, None))))
}

/// Model files in the models folder that are not registered yet.
#[utoipa::path(get, path = "/api/models/candidates", tag = "models", responses((status = 200, body = CandidateList)))]
pub async fn candidates(State(parts): State<ApiParts>, _: SignedIn) -> Result<Json<CandidateList>, ProblemResponse> {
    let found = parts.registry.candidates().await?;
    let candidates = found
        .into_iter()
        .map(|c| CandidatePart { path: c.path.display().to_string(), size_bytes: c.size.0, suggested_name: c.suggested_name })
        .collect();
    Ok(Json(CandidateList { candidates }))
}

/// One model.
#[utoipa::path(get, path = "/api/models/{id}", tag = "models", params(("id" = String, Path)), responses((status = 200, body = ModelDocument), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn, Path(id): Path<String>) -> Result<Json<ModelDocument>, ProblemResponse> {
    Ok(Json(one(&parts, &ModelId::from_stored(id)).await?))
}

/// Forgets a model; its file stays.
#[utoipa::path(delete, path = "/api/models/{id}", tag = "models", params(("id" = String, Path)), responses(
    (status = 204), (status = 404, description = "`not_found`", body = ErrorBody), (status = 409, description = "`conflict`: it is loaded", body = ErrorBody)))]
pub async fn remove(State(parts): State<ApiParts>, SignedIn(principal): SignedIn, Path(id): Path<String>) -> Result<StatusCode, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    parts.registry.remove(&ModelId::from_stored(id)).await?;
    parts.serving.caught_up().await;
    Ok(StatusCode::NO_CONTENT)
}

/// Wants a model running. The answer comes at once; the document's state shows how it goes.
#[utoipa::path(post, path = "/api/models/{id}/load", tag = "models", params(("id" = String, Path)), responses(
    (status = 202, body = ModelDocument),
    (status = 404, description = "`not_found`", body = ErrorBody),
    (status = 409, description = "`conflict`: running or loading already", body = ErrorBody),
    (status = 422, description = "`bad_model_file`", body = ErrorBody),
    (status = 503, description = "`engine_unavailable`", body = ErrorBody)))]
pub async fn load(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<ModelDocument>), ProblemResponse> {
    roles::require(&principal, Change::Run)?;
    let id = ModelId::from_stored(id);
    parts.serving.load(&id).await?;
    Ok((StatusCode::ACCEPTED, Json(one(&parts, &id).await?)))
}

/// Wants a model stopped. Requests in flight get up to 30 s; a load under way is cancelled.
#[utoipa::path(post, path = "/api/models/{id}/unload", tag = "models", params(("id" = String, Path)), responses(
    (status = 202, body = ModelDocument), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn unload(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<ModelDocument>), ProblemResponse> {
    roles::require(&principal, Change::Run)?;
    let id = ModelId::from_stored(id);
    parts.serving.unload(&id).await?;
    Ok((StatusCode::ACCEPTED, Json(one(&parts, &id).await?)))
}

/// The engine's last log lines.
#[utoipa::path(get, path = "/api/models/{id}/logs", tag = "models", params(("id" = String, Path), LogQuery), responses(
    (status = 200, body = LogLines), (status = 404, description = "`not_found`", body = ErrorBody), (status = 422, description = "`invalid_value`", body = ErrorBody)))]
pub async fn logs(
    State(parts): State<ApiParts>,
    _: SignedIn,
    Path(id): Path<String>,
    query: Result<Query<LogQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<LogLines>, ProblemResponse> {
    let bad = || Problem::new(ProblemKind::Invalid, "`lines` must be a number from 1 to 5000, and it is the only parameter.").param("lines");
    let Query(query) = query.map_err(|_| bad())?;
    let lines = query.lines.unwrap_or(200);
    if !(1..=5000).contains(&lines) {
        return Err(bad().into());
    }
    Ok(Json(LogLines { lines: parts.serving.log_tail(&ModelId::from_stored(id), lines).await? }))
}
