//! One replica of a model: taking it out of service.

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::ids::ModelId;

use crate::{
    ApiParts,
    models::{ModelDocument, one},
    openapi::ErrorBody,
    roles::{self, Change},
};

/// Takes one replica out of service: its requests get up to 30 s, then it stops. The next load or reload of the model starts it again.
#[utoipa::path(post, path = "/api/models/{id}/replicas/{number}/drain", tag = "models", params(("id" = String, Path), ("number" = u16, Path, description = "Counted from 0")), responses(
    (status = 202, body = ModelDocument),
    (status = 404, description = "`not_found`", body = ErrorBody),
    (status = 409, description = "`conflict`: it does not run, no other replica answers, or a reload is under way", body = ErrorBody)))]
pub async fn drain(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path((id, number)): Path<(String, u16)>,
) -> Result<(StatusCode, Json<ModelDocument>), ProblemResponse> {
    roles::require(&principal, Change::Run)?;
    let id = ModelId::from_stored(id);
    parts.serving.drain(&id, number).await?;
    Ok((StatusCode::ACCEPTED, Json(one(&parts, &id).await?)))
}
