//! What was kept of engines that were given up: its list, and its files as text without secrets.

use axum::{
    Json,
    extract::{Path, State},
    http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    response::IntoResponse,
};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::ids::ModelId;

use crate::{
    ApiParts,
    model_state::{ReasonPart, reason},
    openapi::ErrorBody,
    roles::{self, Change},
};

/// What was kept of a model's engines, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct EvidenceList {
    evidence: Vec<EvidencePart>,
}

/// One engine that was given up.
#[derive(Debug, Serialize, ToSchema)]
pub struct EvidencePart {
    /// The name by which its files are asked for.
    name: String,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    replica: String,
    reason: ReasonPart,
    files: Vec<EvidenceFile>,
}

/// One file.
#[derive(Debug, Serialize, ToSchema)]
pub struct EvidenceFile {
    name: String,
    size_bytes: u64,
}

/// What was kept of engines of a model that were given up; at most 20 in all.
#[utoipa::path(get, path = "/api/models/{id}/evidence", tag = "models", params(("id" = String, Path)), responses(
    (status = 200, body = EvidenceList), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn list(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
) -> Result<Json<EvidenceList>, ProblemResponse> {
    roles::require(&principal, Change::Run)?;
    let kept = parts.serving.evidence(&ModelId::from_stored(id)).await?;
    let evidence = kept
        .into_iter()
        .map(|kept| EvidencePart {
            name: kept.name,
            at: kept.incident.at,
            replica: kept.incident.replica.to_string(),
            reason: reason(&kept.incident.reason),
            files: kept.files.into_iter().map(|(name, size)| EvidenceFile { name, size_bytes: size.0 }).collect(),
        })
        .collect();
    Ok(Json(EvidenceList { evidence }))
}

/// One of its files, as text. Secrets that an engine repeated are taken out.
#[utoipa::path(get, path = "/api/models/{id}/evidence/{name}/{file}", tag = "models",
    params(("id" = String, Path), ("name" = String, Path), ("file" = String, Path)), responses(
    (status = 200, body = String, content_type = "text/plain"), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn file(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path((id, name, file)): Path<(String, String, String)>,
) -> Result<impl IntoResponse, ProblemResponse> {
    roles::require(&principal, Change::Run)?;
    let text = parts.serving.evidence_file(&ModelId::from_stored(id), &name, &file).await?;
    // Both names are of a list now, whose names hold letters, digits, dots and dashes.
    let head = [
        (CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{name}-{file}\"")),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((head, text))
}
