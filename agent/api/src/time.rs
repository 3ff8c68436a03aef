//! The clock: where the time comes from, and setting it by hand.

use axum::{Json, extract::State};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::time::{TimeConfig, TimeDocument};

use crate::{
    ApiParts,
    body::JsonBody,
    openapi::ErrorBody,
    roles::{self, Change},
};

/// Where the time comes from.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub enum TimeConfigBody {
    /// From time servers, asked in this order; an empty list = none is asked.
    Ntp {
        #[serde(default)]
        servers: Vec<String>,
    },
    /// Set by hand.
    Manual,
}

impl From<TimeConfigBody> for TimeConfig {
    fn from(body: TimeConfigBody) -> Self {
        match body {
            TimeConfigBody::Ntp { servers } => Self::Ntp { servers },
            TimeConfigBody::Manual => Self::Manual,
        }
    }
}

/// The clock as it is; unknown is `null`.
#[derive(Debug, Serialize, ToSchema)]
pub struct TimeStatePart {
    #[schema(value_type = String, format = DateTime)]
    now: Timestamp,
    /// Whether the time client runs.
    client_runs: Option<bool>,
    /// Whether a time server has set the clock since the start.
    synchronized: Option<bool>,
    /// The servers the time client was told.
    servers: Option<Vec<String>>,
    /// The server it listens to.
    server: Option<String>,
    /// The battery-backed clock.
    #[schema(value_type = Option<String>, format = DateTime)]
    hardware_clock: Option<Timestamp>,
}

/// The clock as a document.
#[derive(Debug, Serialize, ToSchema)]
pub struct TimeBody {
    config: TimeConfigBody,
    state: TimeStatePart,
    /// Why nothing can be set here, with the way out.
    unavailable: Option<String>,
}

impl From<TimeDocument> for TimeBody {
    fn from(document: TimeDocument) -> Self {
        let state = document.state;
        Self {
            config: match document.config {
                TimeConfig::Ntp { servers } => TimeConfigBody::Ntp { servers },
                TimeConfig::Manual => TimeConfigBody::Manual,
            },
            state: TimeStatePart {
                now: state.now,
                client_runs: state.client_runs,
                synchronized: state.synchronized,
                servers: state.servers,
                server: state.server,
                hardware_clock: state.hardware_clock,
            },
            unavailable: document.unavailable,
        }
    }
}

/// Body of a clock set by hand.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClockBody {
    /// The present moment.
    #[schema(value_type = String, format = DateTime, example = "2026-11-30T12:00:00Z")]
    now: Timestamp,
}

/// The clock: where its time comes from and what it says.
#[utoipa::path(get, path = "/api/time", tag = "time", responses((status = 200, body = TimeBody)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn) -> Result<Json<TimeBody>, ProblemResponse> {
    Ok(Json(parts.time.document().await.into()))
}

/// Chooses time servers, or the clock set by hand. Kept over restarts.
#[utoipa::path(put, path = "/api/time", tag = "time", request_body = TimeConfigBody, responses(
    (status = 200, body = TimeBody),
    (status = 422, description = "`invalid_value`: not a server", body = ErrorBody),
    (status = 503, description = "`system_service`", body = ErrorBody)))]
pub async fn configure(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(config): JsonBody<TimeConfigBody>,
) -> Result<Json<TimeBody>, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    Ok(Json(parts.time.configure(config.into(), &principal.account).await?.into()))
}

/// Sets the clock, while it is set by hand.
#[utoipa::path(post, path = "/api/time/clock", tag = "time", request_body = ClockBody, responses(
    (status = 200, body = TimeBody),
    (status = 409, description = "`conflict`: the time comes from servers", body = ErrorBody),
    (status = 422, description = "`invalid_value`", body = ErrorBody),
    (status = 503, description = "`system_service`", body = ErrorBody)))]
pub async fn set_clock(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(clock): JsonBody<ClockBody>,
) -> Result<Json<TimeBody>, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    Ok(Json(parts.time.set_clock(clock.now, &principal.account).await?.into()))
}
