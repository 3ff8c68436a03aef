//! `GET /healthz`: is the agent up. For probes; needs no session and says nothing private.

use axum::{Json, extract::State};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use warden_domain::{
    clock,
    gpu::{GpuReading, GpuReport},
};

use crate::ApiParts;

/// Answer of `/healthz`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// True when the agent answers at all.
    ok: bool,
    /// Version of the agent.
    version: &'static str,
    /// State of the GPUs.
    gpu: GpuHealth,
}

/// GPU part of the answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct GpuHealth {
    /// `ok`, `failing`, `absent` or `unknown`.
    state: &'static str,
    /// What is wrong, if something is.
    error: Option<String>,
    /// Since when it is failing, if it stopped answering.
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// When the cards were last read.
    #[schema(value_type = Option<String>, format = DateTime)]
    checked_at: Option<Timestamp>,
}

/// One word for the cards: a machine without any is fine, one whose driver is silent is not.
fn gpu(report: &GpuReport) -> GpuHealth {
    let reading = &report.snapshot.reading;
    let state = match reading {
        GpuReading::Starting => "unknown",
        GpuReading::Live if report.snapshot.cards.is_empty() => "absent",
        GpuReading::Live => "ok",
        GpuReading::NoLibrary { .. } => "absent",
        GpuReading::Stale { .. } | GpuReading::Failed { .. } => "failing",
    };
    let error = reading.cause().filter(|_| state == "failing").map(ToOwned::to_owned);
    GpuHealth { state, error, since: report.since(clock::now()), checked_at: report.read_at }
}

/// Whether the agent is up.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "The agent is up", body = Health)))]
pub async fn healthz(State(parts): State<ApiParts>) -> Json<Health> {
    Json(Health { ok: true, version: parts.version, gpu: gpu(&parts.gpus.report()) })
}
