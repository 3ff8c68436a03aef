//! `/ui/setup/model/{id}`, still step 2: the load as it goes on, live.

use askama::Template;
use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use warden_domain::{Problem, clock, ids::ModelId};

use crate::{Web, assets::url, engines, model::ModelView, refusal::refuse, respond, shell::Shell, visit::Guest, wording::Progress};

#[derive(Template)]
#[template(path = "setup/load.html", blocks = ["live"])]
pub(crate) struct Load {
    page: Shell,
    step: usize,
    model: ModelView,
    engine: Option<Progress>,
}

impl Load {
    pub(crate) async fn look(web: &Web, guest: &Guest, id: &ModelId) -> Result<Self, Problem> {
        let t = guest.look.lang.text();
        let model = web.registry.get(id).await?;
        let states = web.serving.states();
        Ok(Self {
            page: Shell::bare(web, guest, t.setup_load_title, &format!("/ui/live/setup/{id}")),
            step: 2,
            engine: engines::awaited(web, states.get(id), t).await,
            model: ModelView::of(web, guest, &model, states.get(id), clock::now()),
        })
    }
}

/// `GET /ui/setup/model/{id}`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    match Load::look(&web, &guest, &ModelId::from_stored(id)).await {
        Ok(load) => respond::page(&load),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}
