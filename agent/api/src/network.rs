//! The network: ports, a change that undoes itself, the name of the box.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use axum::{
    Json,
    extract::{Path, Query, State, rejection::QueryRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use warden_access::http::{ProblemResponse, SignedIn, Visitor};
use warden_domain::{
    Problem, ProblemKind, Secret,
    names::NameDocument,
    network::{CONFIRM_DEFAULT, ChangeRequest, Interface, InterfaceConfig, Ipv4Config, Ipv6Config, LastChange, NetworkDocument, NetworkPlan},
};

use crate::{
    ApiParts,
    body::JsonBody,
    openapi::ErrorBody,
    roles::{self, Change},
};

/// How a port gets its IPv4 address.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ipv4Part {
    /// From the DHCP server.
    Dhcp,
    /// As given.
    Static {
        #[schema(value_type = String, example = "192.168.1.20")]
        address: Ipv4Addr,
        /// Bits of the network part, 1 to 31.
        prefix: u8,
        /// `null` = only this network is reached.
        #[serde(default)]
        #[schema(value_type = Option<String>)]
        gateway: Option<Ipv4Addr>,
    },
    /// None.
    Off,
}

/// How a port gets its IPv6 address.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ipv6Part {
    /// From the router.
    Auto,
    /// As given.
    Static {
        #[schema(value_type = String, example = "fd00::20")]
        address: Ipv6Addr,
        /// Bits of the network part, 1 to 127.
        prefix: u8,
        #[serde(default)]
        #[schema(value_type = Option<String>)]
        gateway: Option<Ipv6Addr>,
    },
    /// None.
    Off,
}

/// What an admin wants of one port. What is left out takes its default: DHCP, automatic, the network's own name servers.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InterfaceBody {
    #[serde(default)]
    ipv4: Option<Ipv4Part>,
    #[serde(default)]
    ipv6: Option<Ipv6Part>,
    /// Name servers; empty = those DHCP or the router names.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    dns: Vec<IpAddr>,
    /// Domains in which short names are looked up.
    #[serde(default)]
    search: Vec<String>,
}

impl From<InterfaceBody> for InterfaceConfig {
    fn from(body: InterfaceBody) -> Self {
        Self {
            ipv4: match body.ipv4 {
                None | Some(Ipv4Part::Dhcp) => Ipv4Config::Dhcp,
                Some(Ipv4Part::Off) => Ipv4Config::Off,
                Some(Ipv4Part::Static { address, prefix, gateway }) => Ipv4Config::Static { address, prefix, gateway },
            },
            ipv6: match body.ipv6 {
                None | Some(Ipv6Part::Auto) => Ipv6Config::Auto,
                Some(Ipv6Part::Off) => Ipv6Config::Off,
                Some(Ipv6Part::Static { address, prefix, gateway }) => Ipv6Config::Static { address, prefix, gateway },
            },
            dns: body.dns,
            search: body.search,
        }
    }
}

impl From<InterfaceConfig> for InterfaceBody {
    fn from(config: InterfaceConfig) -> Self {
        Self {
            ipv4: Some(match config.ipv4 {
                Ipv4Config::Dhcp => Ipv4Part::Dhcp,
                Ipv4Config::Off => Ipv4Part::Off,
                Ipv4Config::Static { address, prefix, gateway } => Ipv4Part::Static { address, prefix, gateway },
            }),
            ipv6: Some(match config.ipv6 {
                Ipv6Config::Auto => Ipv6Part::Auto,
                Ipv6Config::Off => Ipv6Part::Off,
                Ipv6Config::Static { address, prefix, gateway } => Ipv6Part::Static { address, prefix, gateway },
            }),
            dns: config.dns,
            search: config.search,
        }
    }
}

/// One wired port.
#[derive(Debug, Serialize, ToSchema)]
pub struct InterfacePart {
    name: String,
    /// What it is told; `null` when it has no settings in use or they are of a kind this document does not know.
    config: Option<InterfaceBody>,
    state: InterfaceState,
}

/// One wired port as it is.
#[derive(Debug, Serialize, ToSchema)]
pub struct InterfaceState {
    /// `connected`, `connecting`, `no_cable`, `disconnected`, `failed`, `unmanaged` or `unknown`.
    state: &'static str,
    mac: Option<String>,
    speed_mbit: Option<u32>,
    /// With their prefixes: `192.168.1.20/24`.
    addresses: Vec<String>,
    #[schema(value_type = Vec<String>)]
    gateways: Vec<IpAddr>,
    #[schema(value_type = Vec<String>)]
    dns: Vec<IpAddr>,
    search: Vec<String>,
}

impl From<Interface> for InterfacePart {
    fn from(port: Interface) -> Self {
        Self {
            name: port.name,
            config: port.config.map(InterfaceBody::from),
            state: InterfaceState {
                state: port.state.as_str(),
                mac: port.mac,
                speed_mbit: port.speed_mbit,
                addresses: port.addresses.iter().map(ToString::to_string).collect(),
                gateways: port.gateways,
                dns: port.dns,
                search: port.search,
            },
        }
    }
}

/// The change that waits for its confirmation.
#[derive(Debug, Serialize, ToSchema)]
pub struct PendingPart {
    interface: String,
    /// Where the console is meanwhile.
    console_urls: Vec<String>,
    /// Until it is undone.
    seconds_left: u64,
}

/// How a change ended.
#[derive(Debug, Serialize, ToSchema)]
pub struct LastPart {
    interface: String,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// True when it was confirmed.
    kept: bool,
    /// What happened.
    message: String,
}

impl From<LastChange> for LastPart {
    fn from(last: LastChange) -> Self {
        Self { interface: last.interface, at: last.at, kept: last.kept, message: last.sentence }
    }
}

/// The name of the box.
#[derive(Debug, Serialize, ToSchema)]
pub struct HostnamePart {
    /// What an admin set; `null` = the image's own.
    config: Option<String>,
    /// What the system says; `null` = it cannot be asked.
    state: Option<String>,
    /// Why it cannot be set here.
    unavailable: Option<String>,
}

impl From<NameDocument> for HostnamePart {
    fn from(name: NameDocument) -> Self {
        Self { config: name.wanted, state: name.present, unavailable: name.unavailable }
    }
}

/// The network as a document.
#[derive(Debug, Serialize, ToSchema)]
pub struct NetworkBody {
    /// Why nothing can be shown or changed here, with the way out; `null` when all is well.
    unavailable: Option<String>,
    interfaces: Vec<InterfacePart>,
    pending: Option<PendingPart>,
    last_change: Option<LastPart>,
    hostname: HostnamePart,
}

fn body(document: NetworkDocument, name: NameDocument) -> NetworkBody {
    NetworkBody {
        unavailable: document.unavailable,
        interfaces: document.interfaces.into_iter().map(InterfacePart::from).collect(),
        pending: document.pending.map(|p| PendingPart { interface: p.interface, console_urls: p.console_urls, seconds_left: p.seconds_left }),
        last_change: document.last.map(LastPart::from),
        hostname: name.into(),
    }
}

/// What a change would do.
#[derive(Debug, Serialize, ToSchema)]
pub struct PlanBody {
    /// One sentence per change; empty = nothing would change.
    changes: Vec<String>,
    warnings: Vec<String>,
    /// Where the console will be; empty when only the DHCP server knows.
    console_urls: Vec<String>,
}

impl From<NetworkPlan> for PlanBody {
    fn from(plan: NetworkPlan) -> Self {
        Self { changes: plan.changes, warnings: plan.warnings, console_urls: plan.console_urls }
    }
}

/// A change that has begun. Confirm it from the new address, or it is undone.
#[derive(Debug, Serialize, ToSchema)]
pub struct BegunBody {
    plan: PlanBody,
    /// For POST /api/network/confirm, once.
    token: String,
    /// The same as pages to open on the new address.
    confirm_urls: Vec<String>,
    confirm_within_seconds: u64,
}

/// Query of a change.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct ChangeQuery {
    /// `1` = only say what would happen.
    plan: Option<String>,
    /// Time for the confirmation, in seconds, such as `60` or `60s`.
    confirm: Option<String>,
}

impl ChangeQuery {
    fn window(&self) -> Result<Duration, Problem> {
        let Some(text) = &self.confirm else { return Ok(CONFIRM_DEFAULT) };
        let seconds = text.strip_suffix('s').unwrap_or(text).parse::<u64>();
        seconds
            .map(Duration::from_secs)
            .map_err(|_| Problem::new(ProblemKind::Invalid, format!("`confirm` is a number of seconds such as 60, not {text:?}.")).param("confirm"))
    }
}

/// Body of a confirmation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmBody {
    /// From the answer to the change.
    #[schema(value_type = String)]
    token: Secret<String>,
}

/// Body of a new name.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHostname {
    /// Letters, digits and dashes; `null` = the image's own.
    hostname: Option<String>,
}

/// Wired ports, the change under trial, how the last one ended, the name of the box.
#[utoipa::path(get, path = "/api/network", tag = "network", responses((status = 200, body = NetworkBody), (status = 401, description = "`unauthorized`", body = ErrorBody)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn) -> Result<Json<NetworkBody>, ProblemResponse> {
    Ok(Json(body(parts.network.document().await, parts.names.document().await)))
}

/// Tries new settings of a port; with `plan=1` only says what they would do. The settings are undone unless they are confirmed from the
/// new address in time.
#[utoipa::path(put, path = "/api/network/interfaces/{name}", tag = "network", params(("name" = String, Path), ChangeQuery), request_body = InterfaceBody, responses(
    (status = 200, description = "The plan", body = PlanBody),
    (status = 202, description = "Begun; confirm it", body = BegunBody),
    (status = 404, description = "`not_found`: no such port", body = ErrorBody),
    (status = 409, description = "`conflict`: another change is under trial, the address is in use, or nothing would change", body = ErrorBody),
    (status = 422, description = "`invalid_value`: the settings cannot work", body = ErrorBody),
    (status = 503, description = "`system_service`", body = ErrorBody)))]
pub async fn change(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    visitor: Visitor,
    Path(name): Path<String>,
    query: Result<Query<ChangeQuery>, QueryRejection>,
    JsonBody(wanted): JsonBody<InterfaceBody>,
) -> Result<Response, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let Query(query) = query.map_err(|_| Problem::new(ProblemKind::Invalid, "Only `plan` and `confirm` are parameters of this call."))?;
    let wanted = InterfaceConfig::from(wanted);
    if query.plan.as_deref().is_some_and(|plan| plan != "0") {
        return Ok(Json(PlanBody::from(parts.network.plan(&name, &wanted).await?)).into_response());
    }
    let window = query.window()?;
    let request = ChangeRequest { interface: name, wanted, window, arrived_on: visitor.local, account: principal.account };
    let begun = parts.network.change(request).await?;
    let answer = BegunBody {
        confirm_urls: begun.confirm_urls(),
        token: begun.token.expose().clone(),
        confirm_within_seconds: begun.window.as_secs(),
        plan: begun.plan.into(),
    };
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

/// Keeps the settings under trial. Needs no session (the browser has none on the new address): the token is the proof, and the call must
/// come in on the new address.
#[utoipa::path(post, path = "/api/network/confirm", tag = "network", request_body = ConfirmBody, responses(
    (status = 200, description = "Kept", body = LastPart),
    (status = 404, description = "`not_found`: wrong, used or too late", body = ErrorBody),
    (status = 409, description = "`conflict`: it did not come in on the new address", body = ErrorBody)))]
pub async fn confirm(
    State(parts): State<ApiParts>,
    visitor: Visitor,
    JsonBody(confirm): JsonBody<ConfirmBody>,
) -> Result<Json<LastPart>, ProblemResponse> {
    Ok(Json(parts.network.confirm(confirm.token.expose(), visitor.local).await?.into()))
}

/// Undoes the change under trial at once.
#[utoipa::path(delete, path = "/api/network/change", tag = "network", responses(
    (status = 200, body = LastPart), (status = 404, description = "`not_found`: none is under trial", body = ErrorBody)))]
pub async fn undo(State(parts): State<ApiParts>, SignedIn(principal): SignedIn) -> Result<Json<LastPart>, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    Ok(Json(parts.network.undo().await?.into()))
}

/// Names the box.
#[utoipa::path(put, path = "/api/network/hostname", tag = "network", request_body = NewHostname, responses(
    (status = 200, body = HostnamePart),
    (status = 422, description = "`invalid_value`", body = ErrorBody),
    (status = 503, description = "`system_service`", body = ErrorBody)))]
pub async fn set_hostname(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(new): JsonBody<NewHostname>,
) -> Result<Json<HostnamePart>, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    Ok(Json(parts.names.set(new.hostname, &principal.account).await?.into()))
}
