//! The observed state of a model as the API shows it.

use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use warden_domain::{
    model::{Incident, LoadPhase, ModelState, ReplicaState, StateReason, StateWord},
    units::Millis,
};

/// What is observed.
#[derive(Debug, Serialize, ToSchema)]
pub struct StatePart {
    state: &'static str,
    /// Load phase, while loading.
    phase: Option<String>,
    /// When this state began; `null` when it was never asked for.
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    reason: Option<ReasonPart>,
    /// Context window per request the engine reports.
    context: Option<u64>,
    last_log_line: Option<String>,
    /// Phases of the load under way: of the first replica that loads.
    phases: Vec<PhasePart>,
    replicas: Vec<ReplicaPart>,
    /// Something that is no state, such as a reload that was given up.
    notice: Option<ReasonPart>,
    /// Engines that were given up lately, newest first.
    incidents: Vec<IncidentPart>,
}

/// Why it failed or waits.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReasonPart {
    code: String,
    message: String,
    hint: Option<String>,
}

/// One phase of a load.
#[derive(Debug, Serialize, ToSchema)]
pub struct PhasePart {
    name: String,
    /// Time in it so far, or in all once it is over, in seconds; `null`: not reached yet.
    elapsed_s: Option<f64>,
    /// What it took in earlier loads (the median), in seconds; `null` when there was none.
    typical_s: Option<f64>,
    /// True once the next one began.
    done: bool,
    /// Parts of it that are done, where the engine says so.
    part: Option<u64>,
    /// Of how many.
    of: Option<u64>,
}

/// One replica.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReplicaPart {
    id: String,
    /// Launch identity: systemd's InvocationID, or boot id, pid and start time.
    launch: Option<String>,
    state: &'static str,
    /// Load phase; while running, `draining`, `stopping` or `not answering` when it is that.
    phase: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    reason: Option<ReasonPart>,
    last_log_line: Option<String>,
    phases: Vec<PhasePart>,
    /// It runs with older settings than those that were asked for last: a reload was given up before its turn, or is under way.
    outdated: bool,
}

/// An engine that was given up while it was wanted.
#[derive(Debug, Serialize, ToSchema)]
pub struct IncidentPart {
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    replica: String,
    reason: ReasonPart,
    /// What was kept of it: a folder in the agent's state folder.
    evidence: Option<String>,
}

/// The document's part.
pub(crate) fn part(state: Option<&ModelState>, now: Timestamp) -> StatePart {
    let replicas = state.map(|s| s.replicas.as_slice()).unwrap_or_default();
    let loading = replicas.iter().find(|replica| !replica.phases.is_empty());
    StatePart {
        state: state.map_or(StateWord::Stopped, |s| s.state).as_str(),
        phase: state.and_then(|s| s.phase.clone()),
        since: state.map(|s| s.since),
        reason: state.and_then(|s| s.reason.as_ref()).map(reason),
        context: state.and_then(|s| s.context).map(|t| t.0),
        last_log_line: state.and_then(|s| s.last_log_line.clone()),
        phases: loading.map_or_else(Vec::new, |replica| phases(replica, now)),
        replicas: replicas.iter().map(|r| replica(r, now)).collect(),
        notice: state.and_then(|s| s.notice.as_ref()).map(reason),
        incidents: state.map_or_else(Vec::new, |s| s.incidents.iter().map(incident).collect()),
    }
}

fn replica(state: &ReplicaState, now: Timestamp) -> ReplicaPart {
    ReplicaPart {
        id: state.id.to_string(),
        launch: state.launch.clone(),
        state: state.state.as_str(),
        phase: state.phase.clone(),
        since: state.since,
        reason: state.reason.as_ref().map(reason),
        last_log_line: state.last_log_line.clone(),
        phases: phases(state, now),
        outdated: state.outdated,
    }
}

fn phases(state: &ReplicaState, now: Timestamp) -> Vec<PhasePart> {
    state.phases.iter().map(|phase| phase_part(phase, now)).collect()
}

fn phase_part(phase: &LoadPhase, now: Timestamp) -> PhasePart {
    let so_far = || phase.began.map(|began| now.duration_since(began).as_secs_f64().max(0.0));
    PhasePart {
        name: phase.name.clone(),
        elapsed_s: phase.took.map(seconds).or_else(so_far),
        typical_s: phase.typical.map(seconds),
        done: phase.took.is_some(),
        part: phase.part.map(|(part, _)| part),
        of: phase.part.map(|(_, of)| of),
    }
}

#[allow(clippy::cast_precision_loss, reason = "durations of a load are far below the exact range")]
fn seconds(time: Millis) -> f64 {
    time.0 as f64 / 1000.0
}

fn incident(incident: &Incident) -> IncidentPart {
    IncidentPart { at: incident.at, replica: incident.replica.to_string(), reason: reason(&incident.reason), evidence: incident.evidence.clone() }
}

pub(crate) fn reason(reason: &StateReason) -> ReasonPart {
    ReasonPart { code: reason.code.clone(), message: reason.message.clone(), hint: reason.hint.clone() }
}
