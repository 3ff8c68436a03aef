//! Step 3: the first key, shown once, and a request to try it with.

use askama::Template;
use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use warden_domain::{
    Problem, ProblemKind,
    ids::ModelId,
    key::{NewKey, Priority},
};

use crate::{
    Web,
    assets::url,
    model,
    refusal::{self, refuse},
    respond,
    shell::Shell,
    visit::Guest,
};

/// Name of the key the wizard makes; a number follows when it is taken.
const FIRST: &str = "first-key";

#[derive(Template)]
#[template(path = "setup/done.html", blocks = ["sheet"])]
struct Done {
    page: Shell,
    step: usize,
    key_label: String,
    /// Empty when the page is only looked at.
    secret: String,
    example: String,
}

/// `POST /ui/setup/finish/{id}`: makes the key and shows it.
pub(crate) async fn submit(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let t = guest.look.lang.text();
    let made = async {
        let model = web.registry.get(&ModelId::from_stored(id)).await?;
        Ok((model.config.served_name, first_key(&web, &guest).await?))
    };
    match made.await {
        Ok((served_name, made)) => {
            let secret = made.secret.expose().clone();
            let example = model::example(&guest.origin, &served_name, &secret, t);
            let done = Done {
                page: Shell::bare(&web, &guest, t.setup_done_title, ""),
                step: 3,
                key_label: t.setup_done_key(&made.key.name),
                secret,
                example,
            };
            if respond::is_htmx(&headers) { respond::page(&done.as_sheet()) } else { respond::page(&done) }
        }
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

async fn first_key(web: &Web, guest: &Guest) -> Result<NewKey, Problem> {
    if !guest.is_admin() {
        return Err(refusal::role(guest));
    }
    let mut outcome = web.keys.create(&guest.principal.account, FIRST, Priority::USUAL).await;
    for number in 2..=9 {
        match &outcome {
            Err(problem) if problem.kind == ProblemKind::Conflict => {
                outcome = web.keys.create(&guest.principal.account, &format!("{FIRST}-{number}"), Priority::USUAL).await
            }
            _ => break,
        }
    }
    outcome
}

/// `GET /ui/setup/done`: the same page without the key.
pub(crate) async fn page(State(web): State<Web>, guest: Guest) -> Response {
    let t = guest.look.lang.text();
    let served = web.serving.table().models.keys().next().cloned();
    respond::page(&Done {
        page: Shell::bare(&web, &guest, t.setup_done_title, ""),
        step: 3,
        key_label: String::new(),
        secret: String::new(),
        example: model::example(&guest.origin, served.as_deref().unwrap_or("MODEL"), "vw_…", t),
    })
}
