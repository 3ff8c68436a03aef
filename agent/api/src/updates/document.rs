//! The document of updates as it is sent.

use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use warden_domain::update::{Offer, Reaches, UpdateFault, UpdateView};

use super::UpdateConfig;

/// Work that was begun.
#[derive(Debug, Serialize, ToSchema)]
pub struct TaskStarted {
    /// Follow it at `/api/tasks/{id}`.
    pub(super) task: String,
}

/// Updates as a document: `config` is what was decided, `state` is what is.
#[derive(Debug, Serialize, ToSchema)]
pub struct UpdateDocument {
    config: UpdateConfig,
    state: UpdateState,
}

/// What is.
#[derive(Debug, Serialize, ToSchema)]
pub struct UpdateState {
    /// The version that runs.
    version: String,
    /// `idle`, `available`, `downloading`, `verified`, `installing`, `staged`, `trial`, `confirmed` or `rolled_back`.
    phase: &'static str,
    /// Why nothing can be installed on this machine; `null` on the appliance.
    unavailable: Option<String>,
    slots: Vec<SlotPart>,
    #[schema(value_type = Option<String>, format = DateTime)]
    checked_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    next_check: Option<Timestamp>,
    /// Why the last look at the channel did not work.
    check_fault: Option<FaultPart>,
    /// Number of the newest release that was believed.
    release: Option<u64>,
    /// Why the channel counts as stale; automatic updates wait then.
    stale: Option<String>,
    offers: Vec<OfferPart>,
    attempt: Option<AttemptPart>,
    progress: Option<ProgressPart>,
    /// The work behind it, at `/api/tasks/{id}`.
    task: Option<String>,
    /// Why the last attempt did not go on.
    fault: Option<FaultPart>,
    /// Why the box went back to the system before.
    went_back: Option<FaultPart>,
    /// What the health check saw at the trial.
    gate: Vec<GatePart>,
    /// Systems that fell back here.
    failed: Vec<FailedPart>,
    history: Vec<HistoryPart>,
    uploads: Vec<UploadPart>,
}

/// One of the two systems.
#[derive(Debug, Serialize, ToSchema)]
pub struct SlotPart {
    slot: String,
    version: Option<String>,
    /// Whether it may be started.
    good: Option<bool>,
    running: bool,
    /// Whether it is the next one to start.
    next: Option<bool>,
}

/// Something that did not work.
#[derive(Debug, Serialize, ToSchema)]
pub struct FaultPart {
    /// Stable code.
    code: String,
    /// Cause, subject and way out.
    message: String,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

/// What a release carries.
#[derive(Debug, Serialize, ToSchema)]
pub struct OfferPart {
    /// `os`, `engine`, `model` or `driver`.
    kind: &'static str,
    name: String,
    version: String,
    /// Handle for calls.
    sha256: String,
    size_bytes: u64,
    notes: Option<String>,
    /// `newer`, `same`, `older`, `addition` or `refused`.
    direction: &'static str,
    /// `now`, `later` or `held`: when the rollout reaches this box.
    reaches: &'static str,
    #[schema(value_type = Option<String>, format = DateTime)]
    reaches_at: Option<Timestamp>,
    /// Why this box may not take it.
    refused: Option<FaultPart>,
    /// Why it is not taken by itself.
    failed_before: Option<String>,
    /// True when its file is here, checked.
    downloaded: bool,
    installed: bool,
}

/// The attempt at work, or the last one.
#[derive(Debug, Serialize, ToSchema)]
pub struct AttemptPart {
    version: String,
    from: String,
    sha256: String,
    size_bytes: u64,
    /// `channel`, `upload` or `stick`.
    origin: &'static str,
    automatic: bool,
    #[schema(value_type = String, format = DateTime)]
    began_at: Timestamp,
}

/// How far its step is.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProgressPart {
    done: u64,
    total: u64,
    /// `bytes` or `percent`.
    unit: &'static str,
    bytes_per_s: Option<u64>,
    left_s: Option<u64>,
}

/// One check of the new system.
#[derive(Debug, Serialize, ToSchema)]
pub struct GatePart {
    code: String,
    /// `passed`, `failed` or `not_applicable`.
    outcome: &'static str,
    message: String,
}

/// A system that fell back here.
#[derive(Debug, Serialize, ToSchema)]
pub struct FailedPart {
    version: String,
    sha256: String,
    reason: String,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    falls: u32,
}

/// One line of what happened.
#[derive(Debug, Serialize, ToSchema)]
pub struct HistoryPart {
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    version: String,
    from: String,
    /// `confirmed`, `rolled_back`, `failed`, `cancelled`, `went_back` or `added`.
    outcome: String,
    message: Option<String>,
}

/// A file on its way here.
#[derive(Debug, Serialize, ToSchema)]
pub struct UploadPart {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) size_bytes: u64,
    /// The next piece begins there.
    pub(super) received_bytes: u64,
    #[schema(value_type = String, format = DateTime)]
    pub(super) begun_at: Timestamp,
}

impl From<UpdateFault> for FaultPart {
    fn from(fault: UpdateFault) -> Self {
        Self { code: fault.code, message: fault.sentence, at: fault.at }
    }
}

fn offer(offer: Offer) -> OfferPart {
    let (reaches, reaches_at) = match offer.reaches {
        Reaches::Now => ("now", None),
        Reaches::At(moment) => ("later", Some(moment)),
        Reaches::Held => ("held", None),
    };
    OfferPart {
        kind: offer.kind,
        name: offer.name,
        version: offer.version,
        sha256: offer.sha256,
        size_bytes: offer.bytes.0,
        notes: offer.notes,
        direction: offer.direction,
        reaches,
        reaches_at,
        refused: offer.refused.map(Into::into),
        failed_before: offer.failed_before,
        downloaded: offer.here,
        installed: offer.installed,
    }
}

/// The view as it is sent.
#[must_use]
pub fn document(view: UpdateView) -> UpdateDocument {
    let config = UpdateConfig::of(&view.settings);
    let slots = view.slots.into_iter().map(|s| SlotPart { slot: s.slot, version: s.version, good: s.good, running: s.running, next: s.next });
    let attempt = view.attempt.map(|a| AttemptPart {
        version: a.version,
        from: a.from,
        sha256: a.sha256,
        size_bytes: a.bytes.0,
        origin: a.origin,
        automatic: a.automatic,
        began_at: a.began_at,
    });
    let progress = view.progress.map(|p| ProgressPart {
        done: p.done,
        total: p.total,
        unit: if p.bytes { "bytes" } else { "percent" },
        bytes_per_s: p.per_second,
        left_s: p.left_s,
    });
    let failed = view.failed.into_iter().map(|f| FailedPart { version: f.version, sha256: f.sha256, reason: f.reason, at: f.at, falls: f.falls });
    let history =
        view.history.into_iter().map(|h| HistoryPart { at: h.at, version: h.version, from: h.from, outcome: h.outcome, message: h.sentence });
    let state = UpdateState {
        version: view.version,
        phase: view.phase.as_str(),
        unavailable: view.cannot_install,
        slots: slots.collect(),
        checked_at: view.checked_at,
        next_check: view.next_check,
        check_fault: view.check_fault.map(Into::into),
        release: view.release,
        stale: view.stale,
        offers: view.offers.into_iter().map(offer).collect(),
        attempt,
        progress,
        task: view.task.map(|task| task.to_string()),
        fault: view.fault.map(Into::into),
        went_back: view.went_back.map(Into::into),
        gate: view.gate.into_iter().map(|g| GatePart { code: g.code, outcome: g.outcome, message: g.sentence }).collect(),
        failed: failed.collect(),
        history: history.collect(),
        uploads: view.uploads.into_iter().map(Into::into).collect(),
    };
    UpdateDocument { config, state }
}
