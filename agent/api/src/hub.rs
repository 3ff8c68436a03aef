//! Models by name: what a repository holds, whether it fits, and how the hub is reached.

use axum::{
    Json,
    extract::{Query, State},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::{
    Problem, ProblemKind, Secret,
    engine::EngineKind,
    fit::{FitAsk, FitTable, FitWhere, KvType},
    hub::{Care, Choice, HubChange, HubFile, HubSettings, Promise, RepoAsk},
    units::{Bytes, Tokens},
};

use crate::{
    ApiParts,
    body::JsonBody,
    openapi::ErrorBody,
    roles::{self, Change},
};

/// Query of a discovery.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct DiscoverQuery {
    /// `owner/name`.
    repo_id: String,
    /// Branch, tag or commit; `main` when absent.
    revision: Option<String>,
    /// True: each choice gets a quick verdict (`fit`).
    fit: Option<bool>,
    /// For the verdicts: cards by index, separated by commas; host memory when absent.
    gpu_indices: Option<String>,
    /// For the verdicts: context window per request.
    max_model_len: Option<u64>,
    /// For the verdicts: requests at the same time.
    max_batch_size: Option<u16>,
}

/// A file of a repository.
#[derive(Debug, Serialize, ToSchema)]
pub struct HubFilePart {
    path: String,
    size_bytes: u64,
    /// `gguf`, `mmproj`, `adapter`, `safetensors_single`, `safetensors_sharded`, `duplicate`, `pytorch_bin`, `config`, `tokenizer`, `code`,
    /// `other`.
    kind: &'static str,
    /// `null` for small files, which have a git checksum only.
    sha256: Option<String>,
}

/// Something of it that can be fetched and run.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChoicePart {
    /// Names it in later calls.
    filename: String,
    /// Number format; `null` when nothing says.
    quantisation: Option<String>,
    /// Which engine runs it.
    backend: &'static str,
    /// All of its files.
    size_bytes: u64,
    /// Its weights alone.
    weights_bytes: u64,
    files: Vec<String>,
    /// Why it cannot be fetched; `null` when it is whole.
    incomplete: Option<String>,
    /// A quick verdict, when it was asked for.
    fit: Option<FitPart>,
}

/// A verdict in short.
#[derive(Debug, Serialize, ToSchema)]
pub struct FitPart {
    /// `fits`, `tight`, `wont_fit` or `unknown`.
    verdict: &'static str,
    /// For `unknown`: what is not known.
    missing: Vec<String>,
    /// What the sum does not tell: that the engine refuses these cards, that one of them is too small, that a shorter window counts.
    notes: Vec<String>,
    sum_bytes: Option<u64>,
    available_bytes: Option<u64>,
}

/// What a repository holds.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiscoverDocument {
    repo: String,
    revision: String,
    /// The commit that the revision names now.
    commit: String,
    /// Whether people must accept terms to fetch it; `null`: not told.
    gated: Option<bool>,
    files: Vec<HubFilePart>,
    choices: Vec<ChoicePart>,
    /// Files that would run code on this box when a program loaded them (kinds `code` and `pytorch_bin`). None of them is ever fetched.
    never_fetched: Vec<String>,
    /// Chosen keys of `config.json`; `null` when there is none.
    #[schema(value_type = Option<Object>)]
    config: Option<serde_json::Value>,
    /// Always empty: what goes wrong is an error of the call.
    errors: Vec<String>,
}

/// Body of a fit preview.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FitBody {
    /// `owner/name`.
    #[serde(alias = "repo_id")]
    hf_repo: String,
    revision: Option<String>,
    /// A choice, by any of its files; may be left out when there is only one.
    filename: Option<String>,
    /// Cards by index; host memory when absent or empty.
    gpu_indices: Vec<u32>,
    /// Requests at the same time, 1 to 64; 4 when absent.
    max_batch_size: Option<u16>,
    /// vLLM: the share of a card it may take, 0..1; 0.92 when absent.
    gpu_memory_utilization: Option<f64>,
    /// `llamacpp`, `llama.cpp` or `vllm`; from the files when absent.
    backend: Option<String>,
    /// Context window per request; what the model was trained for, at most 4096, when absent.
    max_model_len: Option<u64>,
    /// Format of the token memory: `f16`, `q8_0`, `q4_0`, `fp8`; `f16` when absent.
    kv_cache_type: Option<String>,
    /// Only 1 for now: the verdict is for one replica.
    data_parallel_size: Option<u32>,
}

/// A row of the arithmetic.
#[derive(Debug, Serialize, ToSchema)]
pub struct FitRowPart {
    /// `weights`, `kv`, `compute`, `output`, `repack`, `overhead`, `prompt_cache`, `checkpoints`, `mmproj`, `split`.
    key: &'static str,
    bytes: u64,
    /// The error band.
    least_bytes: u64,
    most_bytes: u64,
    /// The formula in words.
    formula: &'static str,
    /// The formula with the numbers of this model.
    figures: String,
}

/// The numbers older scripts read.
#[derive(Debug, Serialize, ToSchema)]
pub struct BreakdownPart {
    /// All memory of the place.
    total_vram: Option<u64>,
    /// What is there for weights once the rest is taken.
    weights_budget: Option<u64>,
    kv_reserve: Option<u64>,
    file_size: Option<u64>,
    /// Need over what is there.
    ratio: Option<f64>,
    max_model_len_used: Option<u64>,
    replicas: u32,
    gpus_per_replica: usize,
}

/// Whether one choice fits.
#[derive(Debug, Serialize, ToSchema)]
pub struct FitDocument {
    filename: String,
    /// `fits`, `tight`, `wont_fit` or `unknown`.
    verdict: &'static str,
    /// For `unknown`: the fields and facts that are not known.
    missing: Vec<String>,
    /// Sentences about what the sum does not tell: that the engine refuses these cards, that one of them is too small for its part, that a
    /// shorter window was reckoned with.
    notes: Vec<String>,
    rows: Vec<FitRowPart>,
    /// Their sum as estimated; `null` when a row is missing.
    sum_bytes: Option<u64>,
    /// Their sum at most.
    most_bytes: Option<u64>,
    available_bytes: Option<u64>,
    /// What is there, in words.
    place: String,
    backend: &'static str,
    max_batch_size: u16,
    kv_cache_type: &'static str,
    /// What the model was trained for.
    trained_context: Option<u64>,
    breakdown: BreakdownPart,
    /// The longest context with which it fits, for `tight` and `wont_fit`.
    recommended_max_model_len: Option<u64>,
    warnings: Vec<String>,
}

/// How the hub is reached.
#[derive(Debug, Serialize, ToSchema)]
pub struct HubDocument {
    endpoint: String,
    /// Whether an access token is kept for this address. The token itself is never shown.
    has_token: bool,
    /// Downloads take at most so many bytes a second; `null`: no limit.
    limit_bytes_per_second: Option<u64>,
}

/// A change of how the hub is reached; fields left out stay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HubBody {
    /// The public hub or a mirror; empty: the usual one.
    endpoint: Option<String>,
    /// An access token; empty: none. It is kept for this address only.
    #[schema(value_type = Option<String>)]
    token: Option<Secret<String>>,
    /// 0: no limit.
    limit_bytes_per_second: Option<u64>,
}

pub(crate) fn file_part(file: &HubFile) -> HubFilePart {
    let sha256 = match &file.promise {
        Promise::Sha256(hex) => Some(hex.clone()),
        Promise::GitBlob(_) => None,
    };
    HubFilePart { path: file.path.clone(), size_bytes: file.size.0, kind: file.kind.as_str(), sha256 }
}

fn choice_part(choice: &Choice, table: Option<&FitTable>) -> ChoicePart {
    ChoicePart {
        filename: choice.filename.clone(),
        quantisation: choice.quantisation.clone(),
        backend: choice.engine.as_str(),
        size_bytes: choice.size.0,
        weights_bytes: choice.weights.0,
        files: choice.files.iter().map(|file| file.path.clone()).collect(),
        incomplete: choice.incomplete.clone(),
        fit: table.map(|table| FitPart {
            verdict: table.verdict.as_str(),
            missing: table.missing.clone(),
            notes: table.notes.clone(),
            sum_bytes: table.sum.map(|b| b.0),
            available_bytes: table.available.map(|b| b.0),
        }),
    }
}

fn document(filename: String, table: FitTable) -> FitDocument {
    let row = |key: &str| table.rows.iter().find(|row| row.key == key).map(|row| row.bytes.0);
    let weights = row("weights");
    let rest = table.sum.zip(weights).map(|(sum, weights)| sum.0.saturating_sub(weights));
    #[allow(clippy::cast_precision_loss, reason = "a ratio of a few digits")]
    let ratio = table.sum.zip(table.available).filter(|(_, available)| available.0 > 0).map(|(sum, available)| sum.0 as f64 / available.0 as f64);
    let breakdown = BreakdownPart {
        total_vram: table.total.map(|b| b.0),
        weights_budget: table.available.zip(rest).map(|(available, rest)| available.0.saturating_sub(rest)),
        kv_reserve: row("kv"),
        file_size: weights,
        ratio,
        max_model_len_used: table.context.map(|t| t.0),
        replicas: 1,
        gpus_per_replica: table.cards,
    };
    FitDocument {
        filename,
        verdict: table.verdict.as_str(),
        missing: table.missing,
        notes: table.notes,
        sum_bytes: table.sum.map(|b| b.0),
        most_bytes: table.most.map(|b| b.0),
        available_bytes: table.available.map(|b| b.0),
        place: table.place,
        backend: table.engine.as_str(),
        max_batch_size: table.slots,
        kv_cache_type: table.kv.as_str(),
        trained_context: table.trained_context.map(|t| t.0),
        breakdown,
        recommended_max_model_len: table.recommended_context.map(|t| t.0),
        warnings: if table.whole_header { Vec::new() } else { vec!["config_incomplete".to_owned()] },
        rows: table
            .rows
            .into_iter()
            .map(|row| FitRowPart {
                key: row.key,
                bytes: row.bytes.0,
                least_bytes: row.least.0,
                most_bytes: row.most.0,
                formula: row.words,
                figures: row.figures,
            })
            .collect(),
    }
}

fn settings_document(settings: HubSettings) -> HubDocument {
    HubDocument { endpoint: settings.endpoint, has_token: settings.has_token, limit_bytes_per_second: settings.limit.map(|b| b.0) }
}

fn indices(text: Option<&str>) -> Result<FitWhere, Problem> {
    let parts = text.unwrap_or_default().split(',').map(str::trim).filter(|part| !part.is_empty());
    let list = parts.map(str::parse).collect::<Result<Vec<u32>, _>>();
    list.map(FitWhere::Indices)
        .map_err(|_| Problem::new(ProblemKind::Invalid, "`gpu_indices` must be numbers separated by commas, such as 0,1.").param("gpu_indices"))
}

fn backend(name: Option<&str>) -> Result<Option<EngineKind>, Problem> {
    match name {
        None => Ok(None),
        Some("llamacpp") => Ok(Some(EngineKind::LlamaCpp)),
        Some(name) => EngineKind::from_stored(name).map(Some).ok_or_else(|| {
            Problem::new(ProblemKind::Invalid, "There is no engine of that name.").hint("Use llama.cpp or vllm, or leave it out.").param("backend")
        }),
    }
}

/// What a repository of the hub holds: files with their kinds, and what of them can be fetched and run.
#[utoipa::path(get, path = "/api/models/discover", tag = "models", params(DiscoverQuery), responses(
    (status = 200, body = DiscoverDocument),
    (status = 403, description = "`auth_required`: gated or private; `forbidden`: disabled", body = ErrorBody),
    (status = 404, description = "`not_found`: no such repository or revision", body = ErrorBody),
    (status = 422, description = "`invalid_value`", body = ErrorBody),
    (status = 429, description = "`too_many_requests`: the hub asks to wait; `Retry-After` says how long", body = ErrorBody),
    (status = 502, description = "`upstream_unreachable`: the hub cannot be reached", body = ErrorBody)))]
pub async fn discover(
    State(parts): State<ApiParts>,
    _: SignedIn,
    query: Result<Query<DiscoverQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<DiscoverDocument>, ProblemResponse> {
    let Query(query) = query.map_err(|_| {
        Problem::new(
            ProblemKind::Invalid,
            "The query must name `repo_id` and may name `revision`, `fit`, `gpu_indices`, `max_model_len`, `max_batch_size`.",
        )
        .param("repo_id")
    })?;
    let ask = RepoAsk { repo: query.repo_id.clone(), revision: query.revision.clone().unwrap_or_default() };
    let found = parts.hub.discover(&ask).await?;
    let tables = if query.fit == Some(true) {
        let ask = FitAsk {
            repo: ask.repo,
            revision: ask.revision,
            at: indices(query.gpu_indices.as_deref())?,
            context: query.max_model_len.map(Tokens),
            slots: query.max_batch_size,
            ..FitAsk::default()
        };
        parts.hub.fit(&ask, Care::Quick).await?
    } else {
        Vec::new()
    };
    let table = |choice: &Choice| tables.iter().find(|fit| fit.filename == choice.filename).map(|fit| &fit.table);
    Ok(Json(DiscoverDocument {
        files: found.files.iter().map(file_part).collect(),
        choices: found.choices.iter().map(|choice| choice_part(choice, table(choice))).collect(),
        never_fetched: found.code().map(|file| file.path.clone()).collect(),
        config: found.config.json.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        repo: found.repo,
        revision: found.revision,
        commit: found.commit,
        gated: found.gated,
        errors: Vec::new(),
    }))
}

/// Whether a choice of a repository fits, with the arithmetic. Only its header is fetched.
#[utoipa::path(post, path = "/api/models/fit-preview", tag = "models", request_body = FitBody, responses(
    (status = 200, body = FitDocument),
    (status = 403, description = "`auth_required`: gated or private", body = ErrorBody),
    (status = 404, description = "`not_found`: no such repository, revision or file", body = ErrorBody),
    (status = 422, description = "`invalid_value`: a card that is not there, several files to choose from", body = ErrorBody),
    (status = 429, description = "`too_many_requests`: the hub asks to wait", body = ErrorBody),
    (status = 502, description = "`upstream_unreachable`", body = ErrorBody)))]
pub async fn fit(State(parts): State<ApiParts>, _: SignedIn, JsonBody(body): JsonBody<FitBody>) -> Result<Json<FitDocument>, ProblemResponse> {
    if body.data_parallel_size.is_some_and(|size| size != 1) {
        return Err(Problem::new(ProblemKind::Invalid, "The verdict is for one replica; give its cards only.").param("data_parallel_size").into());
    }
    let kv = match body.kv_cache_type.as_deref() {
        None => KvType::default(),
        Some(word) => KvType::from_word(word).ok_or_else(|| {
            Problem::new(ProblemKind::Invalid, "There is no such format of the token memory.")
                .hint("Use f16, q8_0, q4_0 or fp8.")
                .param("kv_cache_type")
        })?,
    };
    if body.gpu_memory_utilization.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
        return Err(Problem::new(ProblemKind::Invalid, "`gpu_memory_utilization` is a share above 0 and up to 1.")
            .param("gpu_memory_utilization")
            .into());
    }
    if body.max_model_len == Some(0) {
        return Err(Problem::new(ProblemKind::Invalid, "A context of 0 tokens cannot be used.").param("max_model_len").into());
    }
    let ask = FitAsk {
        repo: body.hf_repo,
        revision: body.revision.unwrap_or_default(),
        filename: body.filename,
        at: if body.gpu_indices.is_empty() { FitWhere::Host } else { FitWhere::Indices(body.gpu_indices) },
        context: body.max_model_len.map(Tokens),
        slots: body.max_batch_size,
        kv,
        engine: backend(body.backend.as_deref())?,
        utilisation: body.gpu_memory_utilization,
    };
    let one = parts.hub.fit(&ask, Care::Whole).await?.into_iter().next();
    let one = one.ok_or_else(|| Problem::internal("A verdict was asked for and none came."))?;
    Ok(Json(document(one.filename, one.table)))
}

/// How the hub is reached.
#[utoipa::path(get, path = "/api/hub", tag = "models", responses((status = 200, body = HubDocument)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn) -> Result<Json<HubDocument>, ProblemResponse> {
    Ok(Json(settings_document(parts.hub.settings().await?)))
}

/// Changes how the hub is reached. A token is kept for the address it was given with, and sent to no other.
#[utoipa::path(put, path = "/api/hub", tag = "models", request_body = HubBody, responses(
    (status = 200, body = HubDocument), (status = 422, description = "`invalid_value`", body = ErrorBody)))]
pub async fn configure(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(body): JsonBody<HubBody>,
) -> Result<Json<HubDocument>, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let limit = body.limit_bytes_per_second.map(|limit| (limit > 0).then_some(Bytes(limit)));
    let change = HubChange { endpoint: body.endpoint, token: body.token, limit };
    Ok(Json(settings_document(parts.hub.configure(change).await?)))
}
