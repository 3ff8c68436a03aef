//! Updates: where one stands, what is offered, what is set; fetching, installing, trying and going back; bundles without a network.

use std::time::Duration;

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{Path, Query, State},
    http::StatusCode,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::{
    Problem, ProblemKind,
    access::Principal,
    units,
    update::{Automatic, Stick, UpdateSettings, Upload, Window},
};

use crate::{
    ApiParts,
    body::JsonBody,
    openapi::ErrorBody,
    roles::{self, Change},
};

mod document;

use document::{TaskStarted, UploadPart};
pub use document::{UpdateDocument, document as update_document};

/// Largest piece of an upload.
const PIECE_MAX: usize = 16 << 20;
/// A piece that is not there whole by then is given up; the next one begins where the upload stands.
const PIECE_WITHIN: Duration = Duration::from_secs(300);

/// What an admin decides about updates.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateConfig {
    /// Address of the channel's folder; `null`: nobody is ever asked.
    channel_url: Option<String>,
    /// Name of the channel: `stable`, `beta`.
    channel: String,
    /// `off`: only look; `download`: fetch and check; `install`: install and restart too.
    automatic: String,
    /// When the box may act by itself; `null` is at any time.
    window: Option<WindowPart>,
    /// The most bytes a second; `null` is as fast as it goes.
    rate_limit_bytes_per_s: Option<u64>,
}

/// A time of day in UTC. `from` after `to` runs over midnight.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowPart {
    /// Its begin: `02:00`.
    from: String,
    /// Its end: `05:00`.
    to: String,
}

impl UpdateConfig {
    fn of(settings: &UpdateSettings) -> Self {
        let window = settings.window.map(|window| {
            let (from, to) = window.words();
            WindowPart { from, to }
        });
        Self {
            channel_url: settings.channel_url.clone(),
            channel: settings.channel.clone(),
            automatic: settings.automatic.as_str().to_owned(),
            window,
            rate_limit_bytes_per_s: settings.rate_limit.map(|limit| limit.0),
        }
    }

    fn settings(self) -> Result<UpdateSettings, Problem> {
        let automatic = Automatic::from_word(&self.automatic).ok_or_else(|| {
            Problem::new(ProblemKind::Invalid, format!("{:?} is no way to update.", self.automatic))
                .hint("Use off, download or install.")
                .param("automatic")
        })?;
        let window = self.window.map(|part| {
            Window::parse(&part.from, &part.to).ok_or_else(|| {
                Problem::new(ProblemKind::Invalid, "The window is no time of day.").hint("Write both as HH:MM in UTC, such as 02:00.").param("window")
            })
        });
        let rate_limit = self.rate_limit_bytes_per_s.map(units::Bytes);
        Ok(UpdateSettings { channel_url: self.channel_url, channel: self.channel, automatic, window: window.transpose()?, rate_limit })
    }
}

/// What to install.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InstallBody {
    /// SHA-256 of what is wanted, as listed; the newest system when absent.
    sha256: Option<String>,
}

/// A file that is about to be uploaded.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UploadBody {
    /// Its name.
    name: String,
    /// Its size.
    size_bytes: u64,
}

/// Where a piece belongs.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct PieceQuery {
    /// The byte at which the piece begins: where the upload stands.
    offset: u64,
}

/// What becomes of a bundle.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeBody {
    /// True: install the system in it at once; false: it waits.
    install: bool,
}

/// A bundle on a stick.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StickBody {
    /// Handle of the stick, as in `GET /api/storage`; the one that is plugged in when absent.
    source: Option<String>,
    /// True: install the system in it at once; false: it waits.
    install: bool,
}

async fn noted<T>(parts: &ApiParts, by: &Principal, action: &'static str, subject: Option<String>, done: Result<T, Problem>) -> Result<T, Problem> {
    parts.audit.note(by, action, subject, if done.is_ok() { "ok" } else { "refused" }).await?;
    done
}

fn started(task: &warden_domain::ids::TaskId) -> (StatusCode, Json<TaskStarted>) {
    (StatusCode::ACCEPTED, Json(TaskStarted { task: task.to_string() }))
}

/// Where the update stands, what is offered, what is set, what happened.
#[utoipa::path(get, path = "/api/updates", tag = "updates", responses((status = 200, body = UpdateDocument)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn) -> Json<UpdateDocument> {
    Json(update_document(parts.updates.view().await))
}

/// Sets channel, automatic updates, window and rate.
#[utoipa::path(put, path = "/api/updates", tag = "updates", request_body = UpdateConfig, responses(
    (status = 200, body = UpdateConfig),
    (status = 409, description = "`conflict`: an update is at work", body = ErrorBody),
    (status = 422, description = "`invalid_value`", body = ErrorBody)))]
pub async fn configure(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(body): JsonBody<UpdateConfig>,
) -> Result<Json<UpdateConfig>, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let set = parts.updates.configure(body.settings()?).await;
    let set = noted(&parts, &principal, "updates.configure", None, set).await?;
    Ok(Json(UpdateConfig::of(&set)))
}

/// Asks the channel now.
#[utoipa::path(post, path = "/api/updates/check", tag = "updates", responses(
    (status = 202, description = "Begun", body = TaskStarted),
    (status = 409, description = "`conflict`: no address is set, or work is going on", body = ErrorBody)))]
pub async fn check(State(parts): State<ApiParts>, SignedIn(principal): SignedIn) -> Result<(StatusCode, Json<TaskStarted>), ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    Ok(started(&parts.updates.check().await?))
}

/// Fetches, checks and installs, also what fell back before. A system then waits for a restart.
#[utoipa::path(post, path = "/api/updates/install", tag = "updates", request_body = InstallBody, responses(
    (status = 202, description = "Begun", body = TaskStarted),
    (status = 404, description = "`not_found`: no release offers it", body = ErrorBody),
    (status = 409, description = "`conflict`: work is going on", body = ErrorBody),
    (status = 422, description = "`invalid_value`: this box may not take it; the sentence says why", body = ErrorBody)))]
pub async fn install(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(body): JsonBody<InstallBody>,
) -> Result<(StatusCode, Json<TaskStarted>), ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let begun = parts.updates.install(body.sha256.as_deref()).await;
    Ok(started(&noted(&parts, &principal, "updates.install", body.sha256, begun).await?))
}

/// Restarts into the system that was installed. It stays if its own checks find it good; otherwise the box goes back by itself.
#[utoipa::path(post, path = "/api/updates/restart", tag = "updates", responses(
    (status = 202, description = "It restarts"),
    (status = 409, description = "`conflict`: nothing waits, or work would be broken off", body = ErrorBody),
    (status = 503, description = "`system_service`", body = ErrorBody)))]
pub async fn restart(State(parts): State<ApiParts>, SignedIn(principal): SignedIn) -> Result<StatusCode, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    // The record is on disk before the machine goes down.
    parts.audit.note(&principal, "updates.restart", None, "ok").await?;
    if let Err(problem) = parts.updates.restart().await {
        parts.audit.note(&principal, "updates.restart", None, "refused").await?;
        return Err(problem.into());
    }
    Ok(StatusCode::ACCEPTED)
}

/// Ends a transfer at its next safe point, or takes back what waits to be installed.
#[utoipa::path(post, path = "/api/updates/cancel", tag = "updates", responses(
    (status = 202, description = "It ends"), (status = 409, description = "`conflict`: a slot is being written, or there is nothing", body = ErrorBody)))]
pub async fn cancel(State(parts): State<ApiParts>, SignedIn(principal): SignedIn) -> Result<StatusCode, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let done = parts.updates.cancel().await;
    noted(&parts, &principal, "updates.cancel", None, done).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Makes the other system the next one and restarts.
#[utoipa::path(post, path = "/api/updates/go-back", tag = "updates", responses(
    (status = 202, description = "It restarts"),
    (status = 409, description = "`conflict`: the other system cannot be started, or a trial is going on", body = ErrorBody),
    (status = 503, description = "`system_service`", body = ErrorBody)))]
pub async fn go_back(State(parts): State<ApiParts>, SignedIn(principal): SignedIn) -> Result<StatusCode, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    parts.audit.note(&principal, "updates.go-back", None, "ok").await?;
    if let Err(problem) = parts.updates.go_back().await {
        parts.audit.note(&principal, "updates.go-back", None, "refused").await?;
        return Err(problem.into());
    }
    Ok(StatusCode::ACCEPTED)
}

/// Begins an upload of a bundle.
#[utoipa::path(post, path = "/api/updates/uploads", tag = "updates", request_body = UploadBody, responses(
    (status = 201, body = UploadPart),
    (status = 409, description = "`conflict`: too many are under way", body = ErrorBody),
    (status = 422, description = "`invalid_value`", body = ErrorBody),
    (status = 507, description = "`disk_full`", body = ErrorBody)))]
pub async fn open_upload(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(body): JsonBody<UploadBody>,
) -> Result<(StatusCode, Json<UploadPart>), ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let made = parts.updates.open_upload(&body.name, units::Bytes(body.size_bytes)).await;
    let made = noted(&parts, &principal, "updates.upload", Some(body.name), made).await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

/// Where an upload stands: the next piece begins at `received_bytes`.
#[utoipa::path(get, path = "/api/updates/uploads/{id}", tag = "updates", params(("id" = String, Path)), responses(
    (status = 200, body = UploadPart), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn show_upload(State(parts): State<ApiParts>, _: SignedIn, Path(id): Path<String>) -> Result<Json<UploadPart>, ProblemResponse> {
    Ok(Json(parts.updates.upload(&id).await?.into()))
}

/// Takes the next piece, at most 16 MiB. It is on the disk when this answers.
#[utoipa::path(put, path = "/api/updates/uploads/{id}", tag = "updates", params(("id" = String, Path), PieceQuery), request_body(content = Vec<u8>, content_type = "application/octet-stream"), responses(
    (status = 200, body = UploadPart),
    (status = 404, description = "`not_found`", body = ErrorBody),
    (status = 409, description = "`conflict`: the upload stands elsewhere; ask and go on from there", body = ErrorBody),
    (status = 413, description = "`body_too_large`", body = ErrorBody)))]
pub async fn put_upload(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
    query: Result<Query<PieceQuery>, axum::extract::rejection::QueryRejection>,
    body: Body,
) -> Result<Json<UploadPart>, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let Query(query) = query.map_err(|_| {
        Problem::new(ProblemKind::Invalid, "`offset` is missing or no number.").hint("Say at which byte the piece begins.").param("offset")
    })?;
    let piece = piece(body).await?;
    Ok(Json(parts.updates.put_upload(&id, query.offset, &piece).await?.into()))
}

async fn piece(body: Body) -> Result<Bytes, Problem> {
    match tokio::time::timeout(PIECE_WITHIN, axum::body::to_bytes(body, PIECE_MAX)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(Problem::new(ProblemKind::TooLarge, "The piece is larger than 16 MiB, or was cut off.")
            .hint("Ask where the upload stands, and send the next piece from there.")),
        Err(_) => Err(Problem::new(ProblemKind::BadRequest, "The piece did not arrive in time.")
            .hint("Ask where the upload stands, and send smaller pieces from there.")),
    }
}

/// Throws an upload away.
#[utoipa::path(delete, path = "/api/updates/uploads/{id}", tag = "updates", params(("id" = String, Path)), responses(
    (status = 204), (status = 404, description = "`not_found`", body = ErrorBody)))]
pub async fn drop_upload(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
) -> Result<StatusCode, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    parts.updates.drop_upload(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks a whole upload and takes over what it carries: engine packs, models, and a system.
#[utoipa::path(post, path = "/api/updates/uploads/{id}/take", tag = "updates", params(("id" = String, Path)), request_body = TakeBody, responses(
    (status = 202, description = "Begun", body = TaskStarted),
    (status = 404, description = "`not_found`", body = ErrorBody),
    (status = 409, description = "`conflict`: not whole yet, or work is going on", body = ErrorBody)))]
pub async fn take_upload(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(id): Path<String>,
    JsonBody(body): JsonBody<TakeBody>,
) -> Result<(StatusCode, Json<TaskStarted>), ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let begun = parts.updates.take_upload(&id, body.install).await;
    Ok(started(&noted(&parts, &principal, "updates.take-upload", Some(id), begun).await?))
}

/// The same with a bundle on a stick: a file that ends in `.wob`, or the folder of a channel.
#[utoipa::path(post, path = "/api/updates/from-stick", tag = "updates", request_body = StickBody, responses(
    (status = 202, description = "Begun", body = TaskStarted),
    (status = 409, description = "`conflict`: work is going on", body = ErrorBody),
    (status = 503, description = "`system_service`", body = ErrorBody)))]
pub async fn take_from_stick(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(body): JsonBody<StickBody>,
) -> Result<(StatusCode, Json<TaskStarted>), ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let stick = body.source.clone().map_or(Stick::Any, Stick::Disk);
    let begun = parts.updates.take_from_stick(stick, body.install).await;
    Ok(started(&noted(&parts, &principal, "updates.from-stick", body.source, begun).await?))
}

impl From<Upload> for UploadPart {
    fn from(upload: Upload) -> Self {
        let begun_at: Timestamp = upload.begun_at;
        Self { id: upload.id, name: upload.name, size_bytes: upload.bytes.0, received_bytes: upload.received.0, begun_at }
    }
}
