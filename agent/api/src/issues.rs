//! Issues: what is wrong, what was, what could not be looked at; fixes of one click.

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
    Problem, ProblemKind,
    ids::IssueId,
    issue::{Fix, Issue},
};

use crate::{
    ApiParts,
    body::JsonBody,
    openapi::ErrorBody,
    roles::{self, Change},
};

/// One appearance of an issue.
#[derive(Debug, Serialize, ToSchema)]
pub struct IssuePart {
    id: String,
    /// Stable code; docs/issues.md lists them.
    code: &'static str,
    /// `error` or `warning`.
    severity: &'static str,
    /// What it is about: a model's id, a service's name, `data`.
    subject: String,
    /// What is wrong.
    sentence: String,
    /// What to do.
    hint: String,
    /// Kind of the fix of one click (`load_model`, `start_time_service`, `send_alerts`); `null` when there is none.
    fix: Option<&'static str>,
    #[schema(value_type = String, format = DateTime)]
    first_seen: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    last_seen: Timestamp,
    /// When it was seen to be over; `null` while it is open.
    #[schema(value_type = Option<String>, format = DateTime)]
    resolved_at: Option<Timestamp>,
    dismissed: Option<DismissedPart>,
}

/// Somebody knows about it.
#[derive(Debug, Serialize, ToSchema)]
pub struct DismissedPart {
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Account id.
    by: String,
    reason: Option<String>,
}

/// A code that could not be checked.
#[derive(Debug, Serialize, ToSchema)]
pub struct UncheckedPart {
    code: &'static str,
    because: String,
}

/// All issues.
#[derive(Debug, Serialize, ToSchema)]
pub struct IssueList {
    /// How many are open and not dismissed.
    count: usize,
    /// Open ones.
    open: Vec<IssuePart>,
    /// Those that are over, newest first.
    resolved: Vec<IssuePart>,
    /// What could not be looked at; neither fine nor an issue.
    unchecked: Vec<UncheckedPart>,
    /// When all checks last looked; `null` before the first look.
    #[schema(value_type = Option<String>, format = DateTime)]
    checked_at: Option<Timestamp>,
    /// How long that look took, in seconds.
    check_seconds: f64,
}

/// Query of the list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct IssueQuery {
    /// How many resolved ones, 0 to 500; 50 when absent.
    resolved: Option<usize>,
}

/// Body of a dismissal.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DismissBody {
    /// Why, at most 200 characters.
    reason: Option<String>,
}

impl From<Issue> for IssuePart {
    fn from(issue: Issue) -> Self {
        let finding = issue.finding;
        Self {
            id: issue.id.to_string(),
            code: finding.code.as_str(),
            severity: finding.code.severity().as_str(),
            subject: finding.subject,
            sentence: finding.said.to_string(),
            hint: finding.hint,
            fix: finding.fix.as_ref().map(Fix::as_str),
            first_seen: issue.first_seen,
            last_seen: issue.last_seen,
            resolved_at: issue.resolved_at,
            dismissed: issue.dismissed.map(|d| DismissedPart { at: d.at, by: d.by.to_string(), reason: d.reason }),
        }
    }
}

async fn document(parts: &ApiParts, resolved: usize) -> Result<IssueList, Problem> {
    let resolved = parts.issues.resolved(resolved).await?;
    let board = parts.issues.board();
    #[allow(clippy::cast_precision_loss, reason = "milliseconds of one look")]
    let check_seconds = board.took.0 as f64 / 1000.0;
    Ok(IssueList {
        count: board.count(),
        open: board.open.iter().cloned().map(IssuePart::from).collect(),
        resolved: resolved.into_iter().map(IssuePart::from).collect(),
        unchecked: board.unchecked.iter().map(|u| UncheckedPart { code: u.code.as_str(), because: u.because.clone() }).collect(),
        checked_at: board.checked_at,
        check_seconds,
    })
}

/// Open issues, errors first; those that are over; and what could not be checked.
#[utoipa::path(get, path = "/api/issues", tag = "issues", params(IssueQuery), responses(
    (status = 200, body = IssueList), (status = 422, description = "`invalid_value`", body = ErrorBody)))]
pub async fn list(
    State(parts): State<ApiParts>,
    _: SignedIn,
    query: Result<Query<IssueQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<IssueList>, ProblemResponse> {
    let bad = || Problem::new(ProblemKind::Invalid, "`resolved` must be a number from 0 to 500, and it is the only parameter.").param("resolved");
    let Query(query) = query.map_err(|_| bad())?;
    let resolved = query.resolved.unwrap_or(50);
    if resolved > 500 {
        return Err(bad().into());
    }
    Ok(Json(document(&parts, resolved).await?))
}

/// Looks again now; the answer has what was found.
#[utoipa::path(post, path = "/api/issues/check", tag = "issues", responses((status = 200, body = IssueList)))]
pub async fn check(State(parts): State<ApiParts>, SignedIn(principal): SignedIn) -> Result<Json<IssueList>, ProblemResponse> {
    roles::require(&principal, Change::Run)?;
    parts.issues.check_now().await?;
    Ok(Json(document(&parts, 50).await?))
}

/// Does the fix of one click.
#[utoipa::path(post, path = "/api/issues/{id}/fix", tag = "issues", params(("id" = String, Path)), responses(
    (status = 202, body = IssueList),
    (status = 404, description = "`not_found`: it is not open", body = ErrorBody),
    (status = 409, description = "`conflict`: it has no fix of one click, or what the fix says", body = ErrorBody),
    (status = 503, description = "`system_service` or `engine_unavailable`", body = ErrorBody)))]
pub async fn fix(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
) -> Result<(StatusCode, Json<IssueList>), ProblemResponse> {
    roles::require(&principal, Change::Run)?;
    parts.issues.fix(&principal.account, &IssueId::from_stored(id)).await?;
    Ok((StatusCode::ACCEPTED, Json(document(&parts, 50).await?)))
}

/// Notes that somebody knows: the issue stays open and is not counted any more.
#[utoipa::path(post, path = "/api/issues/{id}/dismiss", tag = "issues", params(("id" = String, Path)), request_body = DismissBody, responses(
    (status = 200, body = IssuePart),
    (status = 404, description = "`not_found`: it is not open", body = ErrorBody),
    (status = 422, description = "`invalid_value`", body = ErrorBody)))]
pub async fn dismiss(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
    JsonBody(body): JsonBody<DismissBody>,
) -> Result<Json<IssuePart>, ProblemResponse> {
    roles::require(&principal, Change::Run)?;
    let issue = parts.issues.dismiss(&principal.account, &IssueId::from_stored(id), body.reason.as_deref()).await?;
    Ok(Json(issue.into()))
}

/// Takes a dismissal back.
#[utoipa::path(delete, path = "/api/issues/{id}/dismiss", tag = "issues", params(("id" = String, Path)), responses(
    (status = 200, body = IssuePart), (status = 404, description = "`not_found`: it is not open", body = ErrorBody)))]
pub async fn recall(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
) -> Result<Json<IssuePart>, ProblemResponse> {
    roles::require(&principal, Change::Run)?;
    Ok(Json(parts.issues.recall(&principal.account, &IssueId::from_stored(id)).await?.into()))
}
