//! `/ui/models`: all registered models with their state, live.

use askama::Template;
use axum::{extract::State, http::HeaderMap, response::Response};
use warden_domain::{Problem, clock};

use super::downloads::{self, DownloadView};
use crate::{Web, assets::url, engines::EngineView, model::ModelView, refusal::refuse, respond, shell::Shell, visit::Guest};

#[derive(Template)]
#[template(path = "models/list.html", blocks = ["live"])]
pub(crate) struct List {
    page: Shell,
    rows: Vec<ModelView>,
    engines: Vec<EngineView>,
    downloads: Vec<DownloadView>,
}

impl List {
    pub(crate) async fn look(web: &Web, guest: &Guest) -> Result<Self, Problem> {
        let t = guest.look.lang.text();
        let states = web.serving.states();
        let now = clock::now();
        Ok(Self {
            rows: web.registry.list().await?.iter().map(|model| ModelView::of(web, guest, model, states.get(&model.id), now)).collect(),
            engines: web.engines.packs().await.iter().map(|pack| EngineView::of(pack, t)).collect(),
            downloads: downloads::views(&web.downloads.list().await?, guest.is_admin(), now, t),
            page: Shell::new(web, guest, t.models_title, "/ui/live/models").await?,
        })
    }

    pub(crate) const fn shell(&self) -> &Shell {
        &self.page
    }
}

/// `GET /ui/models`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    match List::look(&web, &guest).await {
        Ok(list) => respond::page(&list),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}
