//! Where requests of a model go: the scheduler's counters, and what each engine says of itself.

use axum::{
    Json,
    extract::{Path, State},
};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::{
    engine::ReplicaSample,
    ids::ModelId,
    routing::{RoutedReplica, RoutingView},
};

use crate::{ApiParts, openapi::ErrorBody};

/// Where requests of a model go. Counters count from the agent's start; unknown is `null`.
#[derive(Debug, Serialize, ToSchema)]
pub struct RoutingDocument {
    /// Replicas wanted.
    data_parallel_size: u16,
    /// Turns of a conversation stay on one replica.
    affinity_enabled: bool,
    /// The rule in force; `null` while nothing runs.
    policy: Option<&'static str>,
    /// Always `null`: the rule moves a conversation, it does not spill.
    spill_threshold: Option<u64>,
    /// Always `null`.
    spill_threshold_source: Option<&'static str>,
    /// When the first request was placed; `null`: none yet.
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    totals: TotalsPart,
    queue: QueuePart,
    ranks: Vec<RankPart>,
    engine_metrics: MetricsPart,
}

/// Sums over all replicas.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct TotalsPart {
    /// Requests that run.
    in_flight: u64,
    /// Conversations that got their first home.
    placed: u64,
    /// Turns that stayed on their home.
    sticky: u64,
    /// Conversations that moved to another home.
    spilled: u64,
    /// Always 0: clients do not choose a replica.
    client_pinned: u64,
    /// Requests of no conversation, which went where there was least to do.
    balanced: u64,
    /// Always 0: every request is placed.
    unrouted: u64,
    /// Answers that repeated themselves, never stopped thinking, or never ended; ended or not.
    runaways: u64,
}

/// Who waits.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct QueuePart {
    waiting: u64,
    /// How long the first has waited.
    longest_wait_seconds: Option<f64>,
    /// When a request that came now would start; `null`: not known yet.
    expected_start_seconds: Option<f64>,
    /// Requests refused for want of room.
    refused: u64,
}

/// One replica.
#[derive(Debug, Serialize, ToSchema)]
pub struct RankPart {
    rank: usize,
    replica: String,
    launch: String,
    /// It takes new requests; false: it drains or is gone.
    offered: bool,
    /// Requests it may have at a time.
    places: u64,
    in_flight: u64,
    /// Requests given up by their clients that its engine still works on.
    lingering: u64,
    /// Conversations at home on it, of this launch.
    assigned_sessions: u64,
    placed: u64,
    sticky: u64,
    spilled_in: u64,
    client_pinned: u64,
    balanced: u64,
    /// Requests it lost before the first byte; they went elsewhere.
    lost: u64,
    /// Prompt tokens of its answers.
    prompt_tokens: Option<u64>,
    /// Of these, from its cache.
    cached_tokens: Option<u64>,
    /// Their share.
    cached_ratio: Option<f64>,
    /// As the engine says.
    requests_running: Option<u64>,
    requests_waiting: Option<u64>,
    /// 0 to 1.
    kv_cache_usage_perc: Option<f64>,
    /// 0 to 1.
    prefix_cache_hit_rate: Option<f64>,
    prefix_cache_hits: Option<u64>,
    prefix_cache_queries: Option<u64>,
}

/// Whether the engines' own figures are there.
#[derive(Debug, Serialize, ToSchema)]
pub struct MetricsPart {
    available: bool,
    /// Why not.
    error: Option<String>,
}

/// Where requests of a model go.
#[utoipa::path(get, path = "/api/models/{id}/dp-routing", tag = "models", params(("id" = String, Path)), responses(
    (status = 200, body = RoutingDocument), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn, Path(id): Path<String>) -> Result<Json<RoutingDocument>, ProblemResponse> {
    let id = ModelId::from_stored(id);
    let model = parts.registry.get(&id).await?;
    let view = parts.routing.routing(&id);
    let (samples, engine_metrics) = figures(&parts, view.as_ref());
    let ranks = view.iter().flat_map(|v| &v.replicas).zip(samples).enumerate().map(|(rank, (r, sample))| rank_of(rank, r, sample.as_ref()));
    Ok(Json(RoutingDocument {
        data_parallel_size: model.config.layout.replicas,
        affinity_enabled: true,
        policy: view.as_ref().map(|v| v.policy),
        spill_threshold: None,
        spill_threshold_source: None,
        since: view.as_ref().and_then(|v| v.since),
        totals: view.as_ref().map(totals).unwrap_or_default(),
        queue: view.as_ref().map(queue).unwrap_or_default(),
        ranks: ranks.collect(),
        engine_metrics,
    }))
}

/// The last figures of each replica, in their order.
fn figures(parts: &ApiParts, view: Option<&RoutingView>) -> (Vec<Option<ReplicaSample>>, MetricsPart) {
    let told = parts.serving.samples();
    let of = |r: &RoutedReplica| told.get(&r.id).filter(|t| t.launch == r.launch).map(|t| t.sample);
    let figures: Vec<Option<ReplicaSample>> = view.iter().flat_map(|v| &v.replicas).map(of).collect();
    let running = view.is_some_and(|v| v.replicas.iter().any(|r| r.offered));
    let error = match (running, figures.iter().any(Option::is_some)) {
        (_, true) => None,
        (true, false) => Some("The engines' own figures cannot be read at the moment.".to_owned()),
        (false, false) => Some("The model is not running.".to_owned()),
    };
    (figures, MetricsPart { available: error.is_none(), error })
}

fn totals(view: &RoutingView) -> TotalsPart {
    let sum = |of: fn(&RoutedReplica) -> u64| view.replicas.iter().map(of).sum();
    TotalsPart {
        in_flight: sum(|r| r.in_flight),
        placed: sum(|r| r.placed),
        sticky: sum(|r| r.stayed),
        spilled: sum(|r| r.moved),
        client_pinned: 0,
        balanced: sum(|r| r.one_shots),
        unrouted: 0,
        runaways: view.runaways,
    }
}

fn queue(view: &RoutingView) -> QueuePart {
    QueuePart {
        waiting: view.waiting,
        longest_wait_seconds: view.longest_wait.map(|d| d.as_secs_f64()),
        expected_start_seconds: view.expected_start.map(|d| d.as_secs_f64()),
        refused: view.refused,
    }
}

fn rank_of(rank: usize, replica: &RoutedReplica, sample: Option<&ReplicaSample>) -> RankPart {
    let (hits, queries) = (sample.and_then(|s| s.cached_total).map(|t| t.0), sample.and_then(|s| s.prompt_total).map(|t| t.0));
    RankPart {
        rank,
        replica: replica.id.to_string(),
        launch: replica.launch.clone(),
        offered: replica.offered,
        places: replica.places,
        in_flight: replica.in_flight,
        lingering: replica.lingering,
        assigned_sessions: replica.homes,
        placed: replica.placed,
        sticky: replica.stayed,
        spilled_in: replica.moved,
        client_pinned: 0,
        balanced: replica.one_shots,
        lost: replica.lost,
        prompt_tokens: replica.prompt.map(|t| t.0),
        cached_tokens: replica.cached.map(|t| t.0),
        cached_ratio: share(replica.cached.map(|t| t.0), replica.prompt.map(|t| t.0)),
        requests_running: sample.and_then(|s| s.running),
        requests_waiting: sample.and_then(|s| s.waiting),
        kv_cache_usage_perc: sample.and_then(|s| s.kv_used_ratio),
        prefix_cache_hit_rate: share(hits, queries),
        prefix_cache_hits: hits,
        prefix_cache_queries: queries,
    }
}

/// A share of nothing is unknown.
fn share(part: Option<u64>, whole: Option<u64>) -> Option<f64> {
    let (part, whole) = (part?, whole.filter(|n| *n > 0)?);
    Some(part as f64 / whole as f64)
}
