//! The machine: version, restart, switch off, factory reset. Admins only, each noted in the audit record before it happens.

use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::{
    Problem, ProblemKind,
    access::Principal,
    machine::{Machine, Power},
    recovery::Audit,
};

use crate::{
    ApiParts,
    body::JsonBody,
    openapi::ErrorBody,
    roles::{self, Change},
};

/// The word that confirms a factory reset.
pub const CONFIRM_WORD: &str = "reset";

/// The machine.
#[derive(Debug, Serialize, ToSchema)]
pub struct SystemAnswer {
    /// Version of the running agent.
    version: &'static str,
    /// True on the appliance; false where restart and reset are not offered.
    appliance: bool,
}

/// What was asked for and is about to happen.
#[derive(Debug, Serialize, ToSchema)]
pub struct SystemGoing {
    /// `reboot`, `power-off` or `factory-reset`.
    action: &'static str,
    /// Id of the reset, as it will stand in the list of consumed resets.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<String>,
}

/// Body of a factory reset.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FactoryReset {
    /// Must be `reset`.
    #[schema(example = "reset")]
    confirm: String,
    /// Whether the model files on the data partition stay.
    keep_models: bool,
}

/// Version, and whether this is an appliance.
#[utoipa::path(get, path = "/api/system", tag = "system", responses((status = 200, body = SystemAnswer)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn) -> Json<SystemAnswer> {
    Json(SystemAnswer { version: parts.version, appliance: parts.machine.offered() })
}

/// Restarts the machine. Requests in flight get their drain time.
#[utoipa::path(post, path = "/api/system/reboot", tag = "system", responses(
    (status = 202, description = "It restarts", body = SystemGoing),
    (status = 403, description = "`forbidden`: not an admin", body = ErrorBody),
    (status = 503, description = "`system_service`: not an appliance, or the system refused", body = ErrorBody)))]
pub async fn reboot(State(parts): State<ApiParts>, SignedIn(principal): SignedIn) -> Result<(StatusCode, Json<SystemGoing>), ProblemResponse> {
    power(&parts, &principal, Power::Reboot).await?;
    Ok((StatusCode::ACCEPTED, Json(SystemGoing { action: "reboot", reset: None })))
}

/// Switches the machine off. It starts again by its power button only.
#[utoipa::path(post, path = "/api/system/power-off", tag = "system", responses(
    (status = 202, description = "It switches off", body = SystemGoing),
    (status = 403, description = "`forbidden`: not an admin", body = ErrorBody),
    (status = 503, description = "`system_service`: not an appliance, or the system refused", body = ErrorBody)))]
pub async fn power_off(State(parts): State<ApiParts>, SignedIn(principal): SignedIn) -> Result<(StatusCode, Json<SystemGoing>), ProblemResponse> {
    power(&parts, &principal, Power::Off).await?;
    Ok((StatusCode::ACCEPTED, Json(SystemGoing { action: "power-off", reset: None })))
}

/// Removes accounts, keys, settings, network profiles and records, and restarts. Network and admin resets are at the local screen only.
#[utoipa::path(post, path = "/api/system/factory-reset", tag = "system", request_body = FactoryReset, responses(
    (status = 202, description = "It is written down and the machine restarts", body = SystemGoing),
    (status = 403, description = "`forbidden`: not an admin", body = ErrorBody),
    (status = 422, description = "`invalid_value`: not confirmed", body = ErrorBody),
    (status = 503, description = "`system_service`: not an appliance, or the system refused", body = ErrorBody)))]
pub async fn factory_reset(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(body): JsonBody<FactoryReset>,
) -> Result<(StatusCode, Json<SystemGoing>), ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    if body.confirm != CONFIRM_WORD {
        return Err(Problem::new(ProblemKind::Invalid, "The factory reset was not confirmed; nothing was changed.")
            .hint(format!("Send \"confirm\": \"{CONFIRM_WORD}\"."))
            .param("confirm")
            .into());
    }
    let (machine, audit) = (parts.machine.as_ref(), parts.audit.as_ref());
    let id = noted(audit, &principal, "system.factory-reset", machine.request_factory_reset(body.keep_models).await).await?;
    restart_for(machine, &id).await?;
    Ok((StatusCode::ACCEPTED, Json(SystemGoing { action: "factory-reset", reset: Some(id) })))
}

async fn power(parts: &ApiParts, principal: &Principal, power: Power) -> Result<(), Problem> {
    roles::require(principal, Change::Manage)?;
    // The record is on disk before the machine goes down.
    parts.audit.note(principal, power.action(), None, "ok").await?;
    let done = parts.machine.power(power).await;
    if done.is_err() {
        parts.audit.note(principal, power.action(), None, "refused").await?;
    }
    done
}

async fn noted(audit: &dyn Audit, by: &Principal, action: &'static str, done: Result<String, Problem>) -> Result<String, Problem> {
    match &done {
        Ok(id) => audit.note(by, action, Some(id.clone()), "ok").await?,
        Err(_) => audit.note(by, action, None, "refused").await?,
    }
    done
}

async fn restart_for(machine: &dyn Machine, id: &str) -> Result<(), Problem> {
    machine.power(Power::Reboot).await.map_err(|problem| {
        Problem::new(problem.kind, format!("The factory reset {id} is written down and will be done at the next start. {}", problem.message))
            .hint("Restart the machine, or switch it off and on.")
    })
}
