//! The console's own chat: a signed-in person asks through the gateway as its own caller, without a key.

use axum::{body::Body, extract::State, response::Response};
use warden_access::http::SignedIn;
use warden_domain::key::{Caller, Priority};

use crate::{ApiParts, openapi::ErrorBody};

/// A chat completion in OpenAI's shape, streamed when asked for. Errors have OpenAI's shape too.
#[utoipa::path(post, path = "/api/chat/completions", tag = "chat", request_body(content = Object, description = "An OpenAI chat completion request", content_type = "application/json"), responses(
    (status = 200, description = "OpenAI's chat completion, or its event stream"), (status = 401, description = "`unauthorized`", body = ErrorBody)))]
pub async fn complete(State(parts): State<ApiParts>, SignedIn(principal): SignedIn, body: Body) -> Response {
    parts.gateway.chat_as(Caller { key: None, name: format!("console: {}", principal.username), priority: Priority::USUAL }, body).await
}
