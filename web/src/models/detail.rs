//! `/ui/models/{id}`: one model; state, settings, file, replicas, log.

use askama::Template;
use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use warden_domain::{
    Problem, clock,
    ids::ModelId,
    model::{Model, ModelState},
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
    launch: String,
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
            replicas: replicas(state, t),
            routing: RoutingCard::of(web, id, t),
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
    vec![
        (t.detail_served_name, config.served_name.clone()),
        (t.detail_engine, config.engine.as_str().to_owned()),
        (t.detail_context, config.context.map_or_else(|| t.detail_context_default.to_owned(), |n| t.detail_tokens(wording::grouped(n.0)))),
        (t.detail_slots, config.slots.to_string()),
        (t.detail_path, config.path.display().to_string()),
    ]
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

fn replicas(state: Option<&ModelState>, t: &Text) -> Vec<ReplicaView> {
    let replicas = state.map(|s| s.replicas.as_slice()).unwrap_or_default();
    replicas
        .iter()
        .map(|replica| ReplicaView {
            id: replica.id.to_string(),
            state: StateView::of(replica.state, t),
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
