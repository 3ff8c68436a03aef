//! `/ui/`: what needs a person, what is served, how to use the box.

use askama::Template;
use axum::{extract::State, http::HeaderMap, response::Response};
use warden_domain::{Problem, clock, model::StateWord};

use crate::{
    Web,
    assets::url,
    engines::EngineView,
    model::{self, ModelView},
    needs::{self, Need},
    refusal::refuse,
    respond,
    shell::Shell,
    visit::Guest,
};

#[derive(Template)]
#[template(path = "home.html", blocks = ["live"])]
pub(crate) struct Home {
    page: Shell,
    needs: Vec<Need>,
    serving: Vec<ModelView>,
    engines: Vec<EngineView>,
    base_url: String,
    example: String,
    keys_line: String,
}

impl Home {
    pub(crate) async fn look(web: &Web, guest: &Guest) -> Result<Self, Problem> {
        let t = guest.look.lang.text();
        let models = web.registry.list().await?;
        let needs = needs::look(web, &models, t).await?;
        let states = web.serving.states();
        let now = clock::now();
        let mut serving: Vec<ModelView> = models
            .iter()
            .filter_map(|model| {
                let state = states.get(&model.id).filter(|s| s.state != StateWord::Stopped)?;
                Some(ModelView::of(web, guest, model, Some(state), now))
            })
            .collect();
        serving.sort_by_key(|row| row.state.word != "running");
        let name = serving.first().map(|row| row.name.clone()).or_else(|| models.first().map(|m| m.config.served_name.clone()));
        let active = web.keys.list().await?.iter().filter(|key| key.revoked_at.is_none()).count();
        Ok(Self {
            needs,
            serving,
            engines: web.engines.packs().await.iter().map(|pack| EngineView::of(pack, t)).collect(),
            base_url: format!("{}/v1", guest.origin),
            example: model::example(&guest.origin, name.as_deref().unwrap_or("MODEL"), "vw_…", t),
            keys_line: t.home_keys_line(active as u64),
            page: Shell::new(web, guest, t.home_title, "/ui/live/home").await?,
        })
    }

    pub(crate) const fn shell(&self) -> &Shell {
        &self.page
    }
}

/// `GET /ui/`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    match Home::look(&web, &guest).await {
        Ok(home) => respond::page(&home),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}
