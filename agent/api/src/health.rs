//! `GET /healthz`: is the agent up. For probes; needs no session and says nothing private.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use crate::ApiParts;

/// Answer of `/healthz`.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// True when the agent answers at all.
    ok: bool,
    /// Version of the agent.
    version: &'static str,
    /// State of the GPUs; `unknown` until a reader for them exists.
    gpu: GpuHealth,
}

/// GPU part of the answer.
#[derive(Debug, Serialize, ToSchema)]
pub struct GpuHealth {
    /// `ok`, `failing`, `absent` or `unknown`.
    state: &'static str,
    /// What is wrong, if something is.
    error: Option<String>,
    /// When it was last looked at.
    checked_at: Option<String>,
}

/// Whether the agent is up.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "The agent is up", body = Health)))]
pub async fn healthz(State(parts): State<ApiParts>) -> Json<Health> {
    Json(Health { ok: true, version: parts.version, gpu: GpuHealth { state: "unknown", error: None, checked_at: None } })
}
