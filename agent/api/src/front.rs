//! The front door: certificate, fingerprints, names the box answers to, the plain port.

use std::net::IpAddr;

use axum::{Json, extract::State};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::front::{Certificates, FrontConfig, FrontState, PlainPort};

use crate::{
    ApiParts,
    body::JsonBody,
    openapi::ErrorBody,
    roles::{self, Change},
};

/// What an admin decides.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsConfigPart {
    /// DNS names besides the host name, at most 32, without scheme, port or path. The certificate is made for them and the console
    /// answers to them.
    #[serde(default)]
    names: Vec<String>,
    /// Whether unencrypted HTTP is answered on port 8080. Off unless an admin turns it on; a development machine has no other port.
    #[serde(default)]
    plain_http: bool,
}

/// The certificate that port 443 shows.
#[derive(Debug, Serialize, ToSchema)]
pub struct CertificatePart {
    /// SHA-256, pairs of hexadecimal digits with colons.
    fingerprint: String,
    names: Vec<String>,
    #[schema(value_type = Vec<String>)]
    addresses: Vec<IpAddr>,
    #[schema(value_type = String, format = DateTime)]
    issued_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    valid_until: Timestamp,
}

/// The plain port.
#[derive(Debug, Serialize, ToSchema)]
pub struct PlainPart {
    /// `open`, `closed`, `failed`, or `only` on a machine without an encrypted port.
    state: &'static str,
    /// Why it failed.
    reason: Option<String>,
}

/// What is observed.
#[derive(Debug, Serialize, ToSchema)]
pub struct TlsStatePart {
    /// Whether this agent speaks TLS at all.
    encrypted: bool,
    /// SHA-256 of the box's own certificate authority, as the local screen shows it; `null` without TLS.
    authority_fingerprint: Option<String>,
    /// The authority as PEM, for trust stores; `null` without TLS.
    authority: Option<String>,
    /// `null` without TLS.
    certificate: Option<CertificatePart>,
    /// Every DNS name the box answers to.
    names: Vec<String>,
    plain: PlainPart,
}

/// The front door.
#[derive(Debug, Serialize, ToSchema)]
pub struct TlsPart {
    config: TlsConfigPart,
    state: TlsStatePart,
}

impl From<Certificates> for CertificatePart {
    fn from(c: Certificates) -> Self {
        Self { fingerprint: c.leaf_fingerprint, names: c.names, addresses: c.addresses, issued_at: c.issued_at, valid_until: c.valid_until }
    }
}

impl From<FrontState> for TlsStatePart {
    fn from(state: FrontState) -> Self {
        let (word, reason) = match state.plain {
            PlainPort::Only => ("only", None),
            PlainPort::Closed => ("closed", None),
            PlainPort::Open => ("open", None),
            PlainPort::Failed(reason) => ("failed", Some(reason)),
        };
        Self {
            encrypted: state.certificates.is_some(),
            authority_fingerprint: state.certificates.as_ref().map(|c| c.authority_fingerprint.clone()),
            authority: state.certificates.as_ref().map(|c| c.authority_pem.clone()),
            certificate: state.certificates.map(CertificatePart::from),
            names: state.names,
            plain: PlainPart { state: word, reason },
        }
    }
}

fn document(parts: &ApiParts) -> TlsPart {
    let FrontConfig { names, plain_http } = parts.front.config();
    TlsPart { config: TlsConfigPart { names, plain_http }, state: parts.front.state().into() }
}

/// Certificate, fingerprints, names and the plain port.
#[utoipa::path(get, path = "/api/tls", tag = "tls", responses((status = 200, body = TlsPart)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn) -> Json<TlsPart> {
    Json(document(&parts))
}

/// Takes new names and opens or shuts the plain port. A changed list makes a new certificate at once; open connections go on.
#[utoipa::path(put, path = "/api/tls", tag = "tls", request_body = TlsConfigPart, responses(
    (status = 200, body = TlsPart), (status = 422, description = "`invalid_value`: not a DNS name, or too many", body = ErrorBody),
    (status = 503, description = "`system_service`: kept, but the port could not be opened or shut now", body = ErrorBody)))]
pub async fn configure(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(body): JsonBody<TlsConfigPart>,
) -> Result<Json<TlsPart>, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    parts.front.configure(&principal.account, FrontConfig { names: body.names, plain_http: body.plain_http }).await?;
    Ok(Json(document(&parts)))
}
