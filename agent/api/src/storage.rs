//! Disks: what is plugged in, model storage, sources to import from.

use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use warden_access::http::{ProblemResponse, SignedIn};
use warden_domain::{
    Problem, ProblemKind,
    ids::{DiskId, TaskId},
    storage::{Adoption, AdoptionPlan, Content, Disk, Import, Overview, Presence, SourceModel, Volume},
};

use crate::{
    ApiParts,
    body::JsonBody,
    openapi::ErrorBody,
    roles::{self, Change},
};

/// Storage as a document: `config` is what was adopted, `state` is what is observed.
#[derive(Debug, Serialize, ToSchema)]
pub struct StorageDocument {
    config: StorageConfig,
    state: StorageState,
}

/// What was adopted.
#[derive(Debug, Serialize, ToSchema)]
pub struct StorageConfig {
    volumes: Vec<RecordedPart>,
}

/// A disk that was made model storage.
#[derive(Debug, Serialize, ToSchema)]
pub struct RecordedPart {
    id: String,
    /// Label of its file system; it is mounted in a folder of the same name.
    label: String,
    /// UUID of its file system.
    fs_uuid: String,
    serial: String,
    wwn: Option<String>,
    model: Option<String>,
    size_bytes: u64,
    filesystem: String,
    #[schema(value_type = String, format = DateTime)]
    adopted_at: Timestamp,
}

/// What is observed.
#[derive(Debug, Serialize, ToSchema)]
pub struct StorageState {
    /// True when a recorded disk is missing or cannot be used: the box works, models on that disk do not.
    degraded: bool,
    /// One sentence per disk that degrades the box.
    reasons: Vec<String>,
    /// False on a machine whose disks are its owner's business.
    managed: bool,
    volumes: Vec<VolumePart>,
    disks: Vec<DiskPart>,
}

/// Where an adopted disk is.
#[derive(Debug, Serialize, ToSchema)]
pub struct VolumePart {
    id: String,
    /// `mounted`, `mounting`, `missing` or `unusable`.
    state: &'static str,
    /// Where it is mounted.
    path: Option<String>,
    free_bytes: Option<u64>,
    total_bytes: Option<u64>,
    /// Why it cannot be used.
    reason: Option<String>,
}

/// A disk that is plugged in.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiskPart {
    /// Handle for calls.
    key: String,
    model: Option<String>,
    serial: Option<String>,
    wwn: Option<String>,
    size_bytes: Option<u64>,
    /// `usb` and the like; `null` for disks inside the chassis.
    bus: Option<String>,
    removable: bool,
    /// `system`, `storage`, `in_use`, `read_only`, `empty`, `blank` or `foreign`.
    role: &'static str,
    /// True when models can be imported from it.
    importable: bool,
    contents: Vec<ContentPart>,
}

/// Something on a disk: the disk as a whole, or a partition.
#[derive(Debug, Serialize, ToSchema)]
pub struct ContentPart {
    device: String,
    size_bytes: u64,
    /// A file system or partition table; `null` when nothing is recognised.
    kind: Option<String>,
    label: Option<String>,
    uuid: Option<String>,
    mounted_at: Vec<String>,
}

/// Query of the adoption call.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct AdoptQuery {
    /// `1`: only say what would happen.
    plan: Option<u8>,
}

/// Body of an adoption.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptBody {
    /// Handle of the disk.
    disk: String,
    /// Its serial number, repeated; needed when something is on the disk.
    serial: Option<String>,
}

/// What an adoption would do.
#[derive(Debug, Serialize, ToSchema)]
pub struct PlanPart {
    disk: String,
    serial: String,
    /// True when the caller must repeat the serial number.
    confirm_serial: bool,
    /// What will happen, in order.
    sentences: Vec<String>,
}

/// Work that was begun.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskBegun {
    /// Follow it at `/api/tasks/{id}`.
    task: String,
}

/// Models on a source.
#[derive(Debug, Serialize, ToSchema)]
pub struct SourceModels {
    models: Vec<SourceModelPart>,
}

/// A model on a source.
#[derive(Debug, Serialize, ToSchema)]
pub struct SourceModelPart {
    /// Path inside the source.
    file: String,
    size_bytes: u64,
    suggested_name: String,
    /// True when a file with its SHA-256 lies beside it.
    has_checksum: bool,
}

/// Body of an import.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportBody {
    /// Handle of the disk it lies on.
    source: String,
    /// Path inside the source, as listed.
    file: String,
    /// Id of the model storage it goes to; the data partition when absent.
    to: Option<String>,
    /// Name to serve it under; made from the file name when absent.
    served_model_name: Option<String>,
}

fn document(overview: Overview) -> StorageDocument {
    let volumes = overview.volumes.iter().map(volume).collect();
    let recorded = overview.volumes.into_iter().map(|v| v.recorded).map(|r| RecordedPart {
        id: r.id.to_string(),
        label: r.label,
        fs_uuid: r.fs_uuid,
        serial: r.serial,
        wwn: r.wwn,
        model: r.model,
        size_bytes: r.size.0,
        filesystem: r.filesystem,
        adopted_at: r.adopted_at,
    });
    StorageDocument {
        config: StorageConfig { volumes: recorded.collect() },
        state: StorageState {
            degraded: !overview.degraded.is_empty(),
            reasons: overview.degraded,
            managed: !overview.elsewhere,
            volumes,
            disks: overview.disks.into_iter().map(disk).collect(),
        },
    }
}

fn volume(volume: &Volume) -> VolumePart {
    let part = |state| VolumePart { id: volume.recorded.id.to_string(), state, path: None, free_bytes: None, total_bytes: None, reason: None };
    match &volume.presence {
        Presence::Mounted { path, free, total } => {
            VolumePart { path: Some(path.display().to_string()), free_bytes: free.map(|b| b.0), total_bytes: total.map(|b| b.0), ..part("mounted") }
        }
        Presence::Mounting => part("mounting"),
        Presence::Missing => part("missing"),
        Presence::Unusable { reason } => VolumePart { reason: Some(reason.clone()), ..part("unusable") },
    }
}

fn disk(disk: Disk) -> DiskPart {
    DiskPart {
        key: disk.key,
        model: disk.model,
        serial: disk.serial,
        wwn: disk.wwn,
        size_bytes: disk.size.map(|b| b.0),
        bus: disk.bus,
        removable: disk.removable,
        role: disk.role.as_str(),
        importable: disk.importable,
        contents: disk.contents.into_iter().map(content).collect(),
    }
}

fn content(content: Content) -> ContentPart {
    ContentPart {
        device: content.device,
        size_bytes: content.size.0,
        kind: content.kind,
        label: content.label,
        uuid: content.uuid,
        mounted_at: content.mounted_at.iter().map(|p| p.display().to_string()).collect(),
    }
}

impl From<AdoptionPlan> for PlanPart {
    fn from(plan: AdoptionPlan) -> Self {
        Self { disk: plan.disk, serial: plan.serial, confirm_serial: plan.confirm_serial, sentences: plan.sentences }
    }
}

impl From<SourceModel> for SourceModelPart {
    fn from(model: SourceModel) -> Self {
        Self { file: model.file, size_bytes: model.size.0, suggested_name: model.suggested_name, has_checksum: model.has_checksum }
    }
}

fn begun(id: &TaskId) -> Response {
    (StatusCode::ACCEPTED, Json(TaskBegun { task: id.to_string() })).into_response()
}

/// Disks, model storage, and whether the box is degraded.
#[utoipa::path(get, path = "/api/storage", tag = "storage", responses((status = 200, body = StorageDocument), (status = 503, description = "`system_service`", body = ErrorBody)))]
pub async fn show(State(parts): State<ApiParts>, _: SignedIn) -> Result<Json<StorageDocument>, ProblemResponse> {
    Ok(Json(document(parts.storage.overview().await?)))
}

/// Makes a disk model storage: erases, formats, mounts and remembers it. With `?plan=1` only says what would happen.
#[utoipa::path(post, path = "/api/storage/adopt", tag = "storage", params(AdoptQuery), request_body = AdoptBody, responses(
    (status = 200, description = "The plan", body = PlanPart),
    (status = 202, description = "Begun", body = TaskBegun),
    (status = 403, description = "`forbidden`: the system disk, or the role does not allow it", body = ErrorBody),
    (status = 404, description = "`not_found`", body = ErrorBody),
    (status = 409, description = "`conflict`: in use", body = ErrorBody),
    (status = 422, description = "`invalid_value`: the serial number must be repeated, or the disk cannot hold models", body = ErrorBody)))]
pub async fn adopt(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    query: Result<Query<AdoptQuery>, axum::extract::rejection::QueryRejection>,
    JsonBody(body): JsonBody<AdoptBody>,
) -> Result<Response, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let Query(query) = query.map_err(|_| Problem::new(ProblemKind::Invalid, "The only parameter is `plan=1`.").param("plan"))?;
    match query.plan {
        None | Some(0) => Ok(begun(&parts.storage.adopt(&principal.account, Adoption { disk: body.disk, serial: body.serial }).await?)),
        Some(1) => Ok(Json(PlanPart::from(parts.storage.plan(&body.disk).await?)).into_response()),
        Some(_) => Err(Problem::new(ProblemKind::Invalid, "`plan` is 1 or absent.").param("plan").into()),
    }
}

/// Unmounts an adopted disk and forgets it. What is on it stays.
#[utoipa::path(delete, path = "/api/storage/volumes/{id}", tag = "storage", params(("id" = String, Path)), responses(
    (status = 204), (status = 404, description = "`not_found`", body = ErrorBody), (status = 409, description = "`conflict`: in use", body = ErrorBody)))]
pub async fn forget(State(parts): State<ApiParts>, SignedIn(principal): SignedIn, Path(id): Path<String>) -> Result<StatusCode, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    parts.storage.forget(&principal.account, &DiskId::from_stored(id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The models on a stick. It is mounted for reading only and given back.
#[utoipa::path(get, path = "/api/storage/sources/{key}/models", tag = "storage", params(("key" = String, Path)), responses(
    (status = 200, body = SourceModels),
    (status = 404, description = "`not_found`", body = ErrorBody),
    (status = 409, description = "`conflict`: an import is going on", body = ErrorBody),
    (status = 422, description = "`invalid_value`: nothing to import from", body = ErrorBody)))]
pub async fn source(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    Path(key): Path<String>,
) -> Result<Json<SourceModels>, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    Ok(Json(SourceModels { models: parts.imports.look(&key).await?.into_iter().map(SourceModelPart::from).collect() }))
}

/// Imports a model from a stick: copies it, compares the copy by SHA-256, registers it.
#[utoipa::path(post, path = "/api/storage/import", tag = "storage", request_body = ImportBody, responses(
    (status = 202, body = TaskBegun),
    (status = 422, description = "`invalid_value`", body = ErrorBody),
    (status = 503, description = "`disk_missing`: the model storage chosen is not there", body = ErrorBody)))]
pub async fn import(
    State(parts): State<ApiParts>,
    SignedIn(principal): SignedIn,
    JsonBody(body): JsonBody<ImportBody>,
) -> Result<Response, ProblemResponse> {
    roles::require(&principal, Change::Manage)?;
    let wish = Import { source: body.source, file: body.file, to: body.to.map(DiskId::from_stored), served_name: body.served_model_name };
    Ok(begun(&parts.imports.begin(&principal.account, wish).await?))
}
