//! The description of the API, and the one shape of its errors.

use std::sync::Arc;

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::{
    OpenApi, ToSchema,
    openapi::{
        InfoBuilder,
        security::{ApiKey, ApiKeyValue, SecurityScheme},
    },
};
use warden_access::http::SignedIn;

/// The shape of every error of the control API.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorBody {
    detail: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorDetail {
    /// Stable code.
    error_code: String,
    /// Cause and subject.
    message: String,
    /// The way out.
    hint: Option<String>,
    /// The field at fault.
    param: Option<String>,
}

#[derive(OpenApi)]
#[openapi(components(schemas(ErrorBody, ErrorDetail)))]
struct Described;

/// The description without paths; the router adds them.
pub fn base(version: &str) -> utoipa::openapi::OpenApi {
    let mut description = Described::openapi();
    description.info = InfoBuilder::new()
        .title("LM Warden control API")
        .version(version)
        .description(Some(
            "Everything the console does. Sign in at /api/auth/login; the session cookie and, for changing calls, X-CSRF-Token authenticate.",
        ))
        .build();
    if let Some(components) = description.components.as_mut() {
        components.add_security_scheme("session", SecurityScheme::ApiKey(ApiKey::Cookie(ApiKeyValue::new("warden_session"))));
    }
    description
}

/// The description as JSON text.
pub fn written(description: &utoipa::openapi::OpenApi) -> String {
    serde_json::to_string_pretty(description).unwrap_or_else(|_| "{}".into())
}

/// Serves the text made at start.
pub async fn serve(_: SignedIn, text: Arc<str>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text.to_string()).into_response()
}
