//! Inference keys. The path keeps the name scripts of the Docker product know.

use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::{
    Problem, ProblemKind,
    ids::KeyId,
    key::{Key, Priority},
};

use crate::{
    ApiParts,
    body::JsonBody,
    openapi::ErrorBody,
    roles::{self, Change},
};

/// A key. Its secret is not kept anywhere.
#[derive(Debug, Serialize, ToSchema)]
pub struct KeyPart {
    id: String,
    name: String,
    /// First characters of the secret.
    prefix: String,
    /// 0 to 9; of those that wait 9 goes first, among equals who came first.
    priority: u8,
    /// `active` or `revoked`.
    status: &'static str,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Timestamp>,
    usage: UsagePart,
}

/// What was charged to a key since it was made.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsagePart {
    requests: u64,
    /// Requests whose engine gave no token counts; the sums below do not hold them.
    requests_without_counts: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
}

/// All keys.
#[derive(Debug, Serialize, ToSchema)]
pub struct KeyList {
    items: Vec<KeyPart>,
    total: usize,
}

/// Body of a new key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKeyBody {
    /// 1 to 64 characters.
    name: String,
    /// 0 to 9; 5 when absent.
    priority: Option<u64>,
}

/// What is to be changed of a key; what is absent stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyChangeBody {
    /// 0 to 9, for requests that come from then on.
    priority: Option<u64>,
}

/// A new key with its secret, shown this once.
#[derive(Serialize, ToSchema)]
pub struct NewKeyAnswer {
    #[serde(flatten)]
    key: KeyPart,
    /// The secret. It cannot be shown again.
    plaintext: String,
}

impl From<Key> for KeyPart {
    fn from(key: Key) -> Self {
        Self {
            id: key.id.to_string(),
            name: key.name,
            prefix: key.prefix,
            priority: key.priority.number(),
            status: if key.revoked_at.is_some() { "revoked" } else { "active" },
            created_at: key.created_at,
            revoked_at: key.revoked_at,
            last_used_at: key.last_used_at,
            usage: UsagePart {
                requests: key.usage.requests,
                requests_without_counts: key.usage.requests_without_counts,
                prompt_tokens: key.usage.prompt.0,
                cached_tokens: key.usage.cached.0,
                completion_tokens: key.usage.completion.0,
            },
        }
    }
}

/// All keys, newest first, revoked ones included.
#[utoipa::path(get, path = "/api/tokens", tag = "keys", responses((status = 200, body = KeyList)))]
pub async fn list(State(parts): State<ApiParts>, _: SignedIn) -> Result<Json<KeyList>, ProblemResponse> {
    let items: Vec<KeyPart> = parts.keys.list().await?.into_iter().map(KeyPart::from).collect();
    Ok(Json(KeyList { total: items.len(), items }))
}

/// Makes a key. Its secret is in this answer and nowhere else.
#[utoipa::path(post, path = "/api/tokens", tag = "keys", request_body = NewKeyBody, responses(
    (status = 201, body = NewKeyAnswer), (status = 409, description = "`conflict`: the name is in use", body = ErrorBody), (status = 422, description = "`invalid_value`", body = ErrorBody)))]
pub async fn create(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(body): JsonBody<NewKeyBody>,
) -> Result<Response, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let priority = body.priority.map(Priority::new).transpose()?.unwrap_or_default();
    let new = parts.keys.create(&principal.account, &body.name, priority).await?;
    let answer = NewKeyAnswer { key: new.key.into(), plaintext: new.secret.expose().clone() };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))], Json(answer)).into_response())
}

/// One key.
#[utoipa::path(get, path = "/api/tokens/{id}", tag = "keys", params(("id" = String, Path)), responses((status = 200, body = KeyPart), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn, Path(id): Path<String>) -> Result<Json<KeyPart>, ProblemResponse> {
    Ok(Json(one(&parts, &id).await?.into()))
}

async fn one(parts: &ApiParts, id: &str) -> Result<Key, Problem> {
    let found = parts.keys.list().await?.into_iter().find(|k| k.id.as_str() == id);
    found.ok_or_else(|| Problem::new(ProblemKind::NotFound, format!("There is no key {id}.")).hint("GET /api/tokens lists the keys."))
}

/// Changes a key.
#[utoipa::path(patch, path = "/api/tokens/{id}", tag = "keys", params(("id" = String, Path)), request_body = KeyChangeBody, responses(
    (status = 200, body = KeyPart), (status = 404, description = "`not_found`", body = ErrorBody), (status = 422, description = "`invalid_value`", body = ErrorBody)))]
pub async fn change(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
    JsonBody(body): JsonBody<KeyChangeBody>,
) -> Result<Json<KeyPart>, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let key = match body.priority.map(Priority::new).transpose()? {
        Some(priority) => parts.keys.set_priority(&principal.account, &KeyId::from_stored(id), priority).await?,
        None => one(&parts, &id).await?,
    };
    Ok(Json(key.into()))
}

/// Revokes a key from the next request on. Its usage stays.
#[utoipa::path(delete, path = "/api/tokens/{id}", tag = "keys", params(("id" = String, Path)), responses((status = 204), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn revoke(State(parts): State<ApiParts>, SignedIn(principal): SignedIn, Path(id): Path<String>) -> Result<StatusCode, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    parts.keys.revoke(&KeyId::from_stored(id)).await?;
    Ok(StatusCode::NO_CONTENT)
}
