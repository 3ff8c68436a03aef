//! Alerts: where issues are told, and what became of the last messages.

use axum::{
    Json,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::{
    Problem, ProblemKind,
    alert::{Delivery, DeliveryState, NewAlertConfig},
    issue::IssueCode,
};

use crate::{
    ApiParts,
    body::JsonBody,
    openapi::ErrorBody,
    roles::{self, Change},
};

/// Settings and state of alerts.
#[derive(Debug, Serialize, ToSchema)]
pub struct AlertDocument {
    config: AlertConfigPart,
    state: AlertStatePart,
}

/// What the admin wants.
#[derive(Debug, Serialize, ToSchema)]
pub struct AlertConfigPart {
    enabled: bool,
    /// Receiver; empty when none was set.
    url: String,
    /// Which issues are told; `null` = all.
    codes: Option<Vec<&'static str>>,
    /// Whether a secret exists. It is never in an answer, except in the one to the call that made it.
    has_secret: bool,
}

/// What is observed.
#[derive(Debug, Serialize, ToSchema)]
pub struct AlertStatePart {
    /// How many wait for a try.
    waiting: usize,
    /// The latest, newest first.
    latest: Vec<DeliveryPart>,
}

/// One message.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeliveryPart {
    /// The same over all tries; the receiver gets it as `X-Warden-Delivery`.
    id: String,
    /// `issue.opened`, `issue.resolved` or `test`.
    event: String,
    /// The issue's code; `null` for a test.
    code: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    made_at: Timestamp,
    /// `waiting`, `delivered` or `given_up`.
    state: &'static str,
    /// Next try, delivery or giving up.
    #[schema(value_type = String, format = DateTime)]
    state_at: Timestamp,
    tries: u32,
    /// What the last try came to; `null` before the first.
    last_result: Option<String>,
}

/// Body of a change. The whole document is replaced.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AlertBody {
    /// Whether anything is sent.
    enabled: bool,
    /// Receiver: `http://host:port/path`.
    url: String,
    /// Which issues are told; absent or `null` = all.
    codes: Option<Vec<String>>,
    /// Makes a new secret even when there is one.
    #[serde(default)]
    new_secret: bool,
}

/// Answer to a change.
#[derive(Serialize, ToSchema)]
pub struct AlertChanged {
    #[serde(flatten)]
    document: AlertDocument,
    /// The secret, when one was made; it cannot be shown again.
    secret: Option<String>,
}

/// Answer to a test.
#[derive(Debug, Serialize, ToSchema)]
pub struct TestQueued {
    /// Its delivery id; `GET /api/alerts` shows what became of it.
    delivery: String,
}

impl From<Delivery> for DeliveryPart {
    fn from(delivery: Delivery) -> Self {
        let (state, state_at) = match delivery.state {
            DeliveryState::Waiting { next_at } => ("waiting", next_at),
            DeliveryState::Delivered { at } => ("delivered", at),
            DeliveryState::GivenUp { at } => ("given_up", at),
        };
        Self {
            id: delivery.id.to_string(),
            event: delivery.event,
            code: delivery.code,
            made_at: delivery.made_at,
            state,
            state_at,
            tries: delivery.tries,
            last_result: delivery.last_result,
        }
    }
}

async fn document(parts: &ApiParts) -> Result<AlertDocument, Problem> {
    let config = parts.alerts.config().await?;
    let state = parts.alerts.state(20).await?;
    Ok(AlertDocument {
        config: AlertConfigPart {
            enabled: config.enabled,
            url: config.url,
            codes: config.codes.map(|codes| codes.into_iter().map(IssueCode::as_str).collect()),
            has_secret: config.has_secret,
        },
        state: AlertStatePart { waiting: state.waiting, latest: state.latest.into_iter().map(DeliveryPart::from).collect() },
    })
}

fn code(word: &str) -> Result<IssueCode, Problem> {
    IssueCode::from_stored(word).ok_or_else(|| {
        let known = IssueCode::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>().join(", ");
        let shown: String = word.chars().filter(|c| !c.is_control()).take(60).collect();
        Problem::new(ProblemKind::Invalid, format!("There is no issue code {shown}.")).hint(format!("Known are: {known}.")).param("codes")
    })
}

/// Settings and the latest messages. For admins: the receiver's address may hold a token.
#[utoipa::path(get, path = "/api/alerts", tag = "alerts", responses((status = 200, body = AlertDocument), (status = 403, description = "`forbidden`", body = ErrorBody)))]
pub async fn show(State(parts): State<ApiParts>, SignedIn(principal): SignedIn) -> Result<Json<AlertDocument>, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    Ok(Json(document(&parts).await?))
}

/// Replaces the settings. The first time alerts are turned on a secret is made and shown in this answer.
#[utoipa::path(put, path = "/api/alerts", tag = "alerts", request_body = AlertBody, responses(
    (status = 200, body = AlertChanged), (status = 422, description = "`invalid_value`", body = ErrorBody)))]
pub async fn set(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(body): JsonBody<AlertBody>,
) -> Result<Response, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let codes = body.codes.map(|words| words.iter().map(|word| code(word)).collect::<Result<Vec<_>, _>>()).transpose()?;
    let new = NewAlertConfig { enabled: body.enabled, url: body.url, codes, new_secret: body.new_secret };
    let secret = parts.alerts.set(&principal.account, new).await?;
    let answer = AlertChanged { document: document(&parts).await?, secret: secret.map(|secret| secret.expose().clone()) };
    Ok(([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))], Json(answer)).into_response())
}

/// Sends a test message, whatever the codes say.
#[utoipa::path(post, path = "/api/alerts/test", tag = "alerts", responses(
    (status = 202, body = TestQueued), (status = 409, description = "`conflict`: alerts are off", body = ErrorBody)))]
pub async fn test(State(parts): State<ApiParts>, SignedIn(principal): SignedIn) -> Result<(StatusCode, Json<TestQueued>), ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let delivery = parts.alerts.test(&principal.account).await?.to_string();
    Ok((StatusCode::ACCEPTED, Json(TestQueued { delivery })))
}
