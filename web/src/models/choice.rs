//! `/ui/models/hub/choice`: one choice of a repository with its whole arithmetic, and the button that fetches it.

use askama::Template;
use axum::{
    Form,
    extract::{Query, State},
    http::HeaderMap,
    response::Response,
};
use warden_domain::{Problem, download::NewDownload, hub::Care, model::Layout, units::Tokens};

use super::{
    asked::{Asked, number},
    sums::Sums,
};
use crate::{
    Web,
    assets::url,
    field::Field,
    refusal::{self, refuse, role},
    respond,
    shell::Shell,
    visit::Guest,
};

#[derive(Template)]
#[template(path = "models/choice.html")]
struct Page {
    page: Shell,
    repo: String,
    filename: String,
    back: String,
    asked: Asked,
    sums: Sums,
    fields: Vec<Field>,
    may: bool,
}

/// `GET /ui/models/hub/choice`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest, Query(pairs): Query<Vec<(String, String)>>) -> Response {
    let asked = Asked::read(&pairs);
    match look(&web, &guest, asked).await {
        Ok(page) => respond::page(&page),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

async fn look(web: &Web, guest: &Guest, asked: Asked) -> Result<Page, Problem> {
    let t = guest.look.lang.text();
    let one = web.hub.fit(&asked.fit(t)?, Care::Whole).await?.into_iter().next();
    let one = one.ok_or_else(|| Problem::internal("A verdict was asked for and none came."))?;
    Ok(Page {
        repo: asked.repo.clone(),
        filename: one.filename.clone(),
        back: Asked { filename: String::new(), ..asked.clone() }.link("/ui/models/hub"),
        sums: Sums::of(&one.table, t),
        fields: vec![
            Field::text("served_name", t.new_name).hint(t.new_name_hint).optional(t.new_optional).focus(),
            Field::text("context", t.new_context).hint(t.new_context_hint).optional(t.new_optional).value(asked.context.clone()),
            Field::text("slots", t.new_slots).hint(t.new_slots_hint).optional(t.new_optional).value(asked.slots.clone()),
        ],
        asked: Asked { filename: one.filename, ..asked },
        may: guest.is_admin(),
        page: Shell::new(web, guest, t.hub_choice_title, "/ui/live/strip").await?,
    })
}

/// `POST /ui/models/hub/choice`: begins the download and shows the page of models, where it is followed.
pub(crate) async fn submit(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(pairs): Form<Vec<(String, String)>>) -> Response {
    let t = guest.look.lang.text();
    let asked = Asked::read(&pairs);
    let field = |name: &str| pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty());
    let outcome = async {
        if !guest.is_admin() {
            return Err(role(&guest));
        }
        let wish = NewDownload {
            repo: asked.repo.clone(),
            revision: asked.revision.clone(),
            filename: Some(asked.filename.clone()).filter(|name| !name.is_empty()),
            served_name: field("served_name"),
            context: number(&asked.context, t.new_context, t)?.map(Tokens),
            slots: number(&asked.slots, t.new_slots, t)?,
            // The cards of the verdict are the ones it runs on.
            layout: Layout { gpus: asked.cards_of(&web.gpus.snapshot()), ..Layout::default() },
            load: field("load").is_some(),
        };
        web.downloads.begin(&guest.principal.account, wish).await
    };
    match outcome.await {
        Ok(_) => respond::go(&headers, "/ui/models"),
        Err(problem) => {
            let (title, body) = refusal::words(&problem, t);
            refusal::notice(refusal::status(&problem), &title, &body)
        }
    }
}
