//! `/ui/setup/model`, step 2: choose a model file; it is registered and loaded in one go.

use askama::Template;
use axum::{Form, extract::State, http::HeaderMap, response::Response};
use warden_domain::{Problem, ProblemKind, ids::ModelId};

use crate::{
    Web,
    assets::url,
    field::Field,
    models::new::{CandidateView, Wanted, choices, path_fields, register},
    refusal::refuse,
    respond,
    shell::Shell,
    visit::Guest,
};

#[derive(Template)]
#[template(path = "setup/model.html")]
struct Choose {
    page: Shell,
    step: usize,
    candidates: Vec<CandidateView>,
    other_chosen: bool,
    fields: Vec<Field>,
}

/// `GET /ui/setup/model`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let t = guest.look.lang.text();
    match web.registry.candidates().await {
        Ok(found) => respond::page(&Choose {
            page: Shell::bare(&web, &guest, t.setup_model_title, ""),
            step: 2,
            candidates: choices(&found),
            other_chosen: found.is_empty(),
            fields: path_fields(t, found.is_empty()),
        }),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/setup/model`: registers and loads, then follows the load.
pub(crate) async fn submit(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(wanted): Form<Wanted>) -> Response {
    match begin(&web, &guest, wanted).await {
        Ok(id) => respond::go(&headers, &format!("/ui/setup/model/{id}")),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

async fn begin(web: &Web, guest: &Guest, wanted: Wanted) -> Result<String, Problem> {
    let id = register(web, guest, wanted).await?;
    match web.serving.load(&ModelId::from_stored(id.clone())).await {
        // Registered but not startable right now: the next page shows it with the reason and a button to try again.
        Err(problem) if problem.kind != ProblemKind::EngineUnavailable && problem.kind != ProblemKind::Conflict => Err(problem),
        _ => Ok(id),
    }
}
