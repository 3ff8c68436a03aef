//! `/ui/models/{id}`: one model; state, settings, file, replicas, log.

use askama::Template;
use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use jiff::Timestamp;
use warden_domain::{
    Problem, clock,
    ids::ModelId,
    model::{Incident, LoadPhase, Model, ModelState, StateWord},
    units::Millis,
};

use crate::{
    Web,
    assets::url,
    catalogue::Text,
    engines,
    model::{self, ModelView},
    models::routing::RoutingCard,
    refusal::refuse,
    respond,
    shell::Shell,
    visit::Guest,
    wording::{self, Moment, Progress, StateView, UNKNOWN},
};

/// Log lines shown.
const LINES: usize = 200;

struct ReplicaView {
    id: String,
    state: StateView,
    /// What it does, or why it does not run.
    more: String,
    launch: String,
    /// Where it is taken out of service, when another one would go on.
    drain_url: Option<String>,
}

struct PhaseView {
    name: String,
    elapsed: String,
    typical: String,
    /// `done`, `now` or `later`.
    word: &'static str,
}

struct IncidentView {
    at: Moment,
    replica: String,
    sentence: String,
    kept: String,
    /// Where its files are.
    files: Option<String>,
}

#[derive(Template)]
#[template(path = "models/detail.html", blocks = ["live"])]
pub(crate) struct Detail {
    page: Shell,
    model: ModelView,
    engine: Option<Progress>,
    config: Vec<(&'static str, String)>,
    facts: Vec<(&'static str, String)>,
    replicas: Vec<ReplicaView>,
    routing: Option<RoutingCard>,
    phases: Vec<PhaseView>,
    incidents: Vec<IncidentView>,
    notice: Option<(String, String)>,
    /// What runs has other settings than the registered ones.
    pending: bool,
    settings_url: Option<String>,
    reload_url: Option<String>,
    example: String,
    log: String,
    log_words: String,
}

impl Detail {
    pub(crate) async fn look(web: &Web, guest: &Guest, id: &ModelId) -> Result<Self, Problem> {
        let t = guest.look.lang.text();
        let model = web.registry.get(id).await?;
        let states = web.serving.states();
        let state = states.get(id);
        let lines = web.serving.log_tail(id, LINES).await?;
        let now = clock::now();
        Ok(Self {
            engine: engines::awaited(web, state, t).await,
            config: config(&model, t),
            facts: facts(&model, state, &Moment::new(model.created_at, now, t), t),
            replicas: replicas(state, guest.may_change().then_some(id), t),
            routing: RoutingCard::of(web, id, t),
            phases: state.map_or_else(Vec::new, |state| phases(state, now, t)),
            incidents: state.map_or_else(Vec::new, |state| state.incidents.iter().map(|found| incident(id, found, now, t)).collect()),
            notice: state.and_then(|s| s.notice.clone()).map(|notice| (notice.message, notice.hint.unwrap_or_default())),
            pending: state.and_then(|s| s.loaded.as_ref()).is_some_and(|loaded| *loaded != model.config),
            settings_url: guest.is_admin().then(|| format!("/ui/models/{id}/settings")),
            reload_url: (guest.may_change() && state.is_some_and(|s| s.state == StateWord::Running)).then(|| format!("/ui/models/{id}/reload")),
            example: model::example(&guest.origin, &model.config.served_name, "vw_…", t),
            log_words: if lines.is_empty() { String::new() } else { t.detail_log_lines(lines.len() as u64) },
            log: lines.join("\n"),
            page: Shell::new(web, guest, &model.config.served_name, &format!("/ui/live/models/{id}")).await?,
            model: ModelView::of(web, guest, &model, state, now),
        })
    }

    pub(crate) const fn shell(&self) -> &Shell {
        &self.page
    }
}

fn config(model: &Model, t: &Text) -> Vec<(&'static str, String)> {
    let config = &model.config;
    let trusted = config.layout.trust_remote_code.then(|| (t.detail_trust, t.detail_trust_yes.to_owned()));
    let facts = [
        (t.detail_served_name, config.served_name.clone()),
        (t.detail_engine, config.engine.as_str().to_owned()),
        (t.detail_context, config.context.map_or_else(|| t.detail_context_default.to_owned(), |n| t.detail_tokens(wording::grouped(n.0)))),
        (t.detail_slots, config.slots.to_string()),
        (t.detail_replica_count, config.layout.replicas.to_string()),
        (t.detail_gpus, joined(config.layout.gpus.iter()).unwrap_or_else(|| t.detail_gpus_none.to_owned())),
        (t.detail_extra_args, joined(config.layout.extra_args.iter()).unwrap_or_else(|| UNKNOWN.to_owned())),
        (t.detail_path, config.path.display().to_string()),
    ];
    facts.into_iter().chain(trusted).collect()
}

fn facts(model: &Model, state: Option<&ModelState>, registered: &Moment, t: &Text) -> Vec<(&'static str, String)> {
    let facts = &model.facts;
    let tokens = |n: Option<warden_domain::units::Tokens>| n.map_or_else(|| UNKNOWN.to_owned(), |n| t.detail_tokens(wording::grouped(n.0)));
    vec![
        (t.detail_title, facts.title.clone().unwrap_or_else(|| UNKNOWN.to_owned())),
        (t.detail_architecture, facts.architecture.clone().unwrap_or_else(|| UNKNOWN.to_owned())),
        (t.detail_size, facts.size.to_string()),
        (t.detail_trained, tokens(facts.trained_context)),
        (t.detail_context_engine, tokens(state.and_then(|s| s.context))),
        (
            t.detail_template,
            match facts.has_chat_template {
                Some(true) => t.detail_template_yes.to_owned(),
                Some(false) => t.detail_template_no.to_owned(),
                None => UNKNOWN.to_owned(),
            },
        ),
        (t.detail_registered, registered.words.clone()),
    ]
}

/// In one line; `None` when there are none.
pub(crate) fn joined<T: ToString>(items: impl Iterator<Item = T>) -> Option<String> {
    let text = items.map(|item| item.to_string()).collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

/// The phases of the load under way: of the first replica that loads.
fn phases(state: &ModelState, now: Timestamp, t: &Text) -> Vec<PhaseView> {
    let loading = state.replicas.iter().find(|replica| !replica.phases.is_empty());
    loading.map_or_else(Vec::new, |replica| replica.phases.iter().map(|phase| phase_view(phase, now, t)).collect())
}

fn phase_view(phase: &LoadPhase, now: Timestamp, t: &Text) -> PhaseView {
    let seconds = |time: Millis| format!("{}.{} s", time.0 / 1000, time.0 % 1000 / 100);
    let elapsed = match (phase.took, phase.began) {
        (Some(took), _) => seconds(took),
        (None, Some(began)) => wording::elapsed(began, now),
        (None, None) => UNKNOWN.to_owned(),
    };
    let part = phase.part.map(|(part, of)| format!(" · {part} / {of}")).unwrap_or_default();
    PhaseView {
        name: format!("{}{part}", wording::phase(Some(&phase.name), t)),
        elapsed,
        typical: phase.typical.map_or_else(|| UNKNOWN.to_owned(), seconds),
        word: if phase.took.is_some() {
            "done"
        } else if phase.began.is_some() {
            "now"
        } else {
            "later"
        },
    }
}

fn incident(id: &ModelId, found: &Incident, now: Timestamp, t: &Text) -> IncidentView {
    IncidentView {
        at: Moment::new(found.at, now, t),
        replica: found.replica.to_string(),
        sentence: found.reason.message.clone(),
        kept: found.evidence.as_ref().map_or_else(|| t.detail_incident_not_kept.to_owned(), |folder| t.detail_incident_kept(folder)),
        files: found.evidence.as_ref().and_then(|folder| folder.rsplit('/').next()).map(|name| format!("/api/models/{id}/evidence/{name}")),
    }
}

/// `changes` = the model, for somebody who may change what runs.
fn replicas(state: Option<&ModelState>, changes: Option<&ModelId>, t: &Text) -> Vec<ReplicaView> {
    let replicas = state.map(|s| s.replicas.as_slice()).unwrap_or_default();
    let answering = replicas.iter().filter(|replica| replica.state == StateWord::Running && replica.phase.is_none()).count();
    replicas
        .iter()
        .enumerate()
        .map(|(number, replica)| ReplicaView {
            id: replica.id.to_string(),
            state: StateView::of(replica.state, t),
            more: match (&replica.reason, &replica.phase) {
                (Some(reason), _) => format!("{} {}", reason.message, reason.hint.clone().unwrap_or_default()),
                (None, Some(phase)) => wording::phase(Some(phase), t),
                (None, None) if replica.outdated => t.detail_outdated.to_owned(),
                (None, None) => String::new(),
            },
            drain_url: changes
                .filter(|_| answering > 1 && replica.state == StateWord::Running && replica.phase.is_none())
                .map(|id| format!("/ui/models/{id}/replicas/{number}/drain")),
            launch: replica.launch.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
        })
        .collect()
}

/// `GET /ui/models/{id}`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    match Detail::look(&web, &guest, &ModelId::from_stored(id)).await {
        Ok(detail) => respond::page(&detail),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}
