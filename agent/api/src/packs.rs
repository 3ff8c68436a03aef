//! Engine packs: what could run models here, and how far a build is.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::engine::{EnginePack, PackState};

use crate::ApiParts;

/// One engine.
#[derive(Debug, Serialize, ToSchema)]
pub struct PackPart {
    engine: &'static str,
    version: Option<String>,
    /// SHA-256 of the pack file, on the appliance.
    digest: Option<String>,
    /// `ready`, `building` or `broken`.
    state: &'static str,
    /// Build steps done, when known.
    step: Option<u32>,
    /// Build steps in all, when known.
    of: Option<u32>,
    message: Option<String>,
}

/// All engines.
#[derive(Debug, Serialize, ToSchema)]
pub struct PackList {
    packs: Vec<PackPart>,
}

impl From<EnginePack> for PackPart {
    fn from(pack: EnginePack) -> Self {
        let (state, step, of, message) = match pack.state {
            PackState::Ready => ("ready", None, None, None),
            PackState::Building { step, of, message } => ("building", step, of, Some(message)),
            PackState::Broken { message } => ("broken", None, None, Some(message)),
        };
        Self { engine: pack.engine.as_str(), version: pack.version, digest: pack.digest, state, step, of, message }
    }
}

/// Engines installed, or on their way.
#[utoipa::path(get, path = "/api/packs", tag = "engines", responses((status = 200, body = PackList)))]
pub async fn list(State(parts): State<ApiParts>, _: SignedIn) -> Result<Json<PackList>, ProblemResponse> {
    Ok(Json(PackList { packs: parts.engines.packs().await.into_iter().map(PackPart::from).collect() }))
}
