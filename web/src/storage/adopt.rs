//! Making a disk model storage, and forgetting one: first what would happen, then one button.

use askama::Template;
use axum::{
    Form,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::Deserialize;
use warden_domain::{
    Problem, ProblemKind,
    ids::DiskId,
    storage::{Adoption, AdoptionPlan},
};

use crate::{
    Web,
    ask::{self, Question},
    assets::url,
    field::Field,
    refusal::{self, refuse, role},
    respond,
    shell::Shell,
    visit::Guest,
};

#[derive(Template)]
#[template(path = "storage/adopt.html", blocks = ["ask"])]
struct Ask {
    page: Shell,
    url: String,
    plan: Vec<String>,
    field: Option<Field>,
    refusal: Option<(String, String)>,
}

/// What the form sends.
#[derive(Deserialize)]
pub(crate) struct Confirmed {
    #[serde(default)]
    serial: String,
}

/// `GET /ui/storage/disks/{key}/adopt`: what would be erased.
pub(crate) async fn ask(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(key): Path<String>) -> Response {
    match web.storage.plan(&key).await {
        Ok(plan) => show(&web, &guest, &headers, plan, None).await,
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/storage/disks/{key}/adopt`
pub(crate) async fn submit(
    State(web): State<Web>,
    headers: HeaderMap,
    guest: Guest,
    Path(key): Path<String>,
    Form(form): Form<Confirmed>,
) -> Response {
    let serial = Some(form.serial.trim().to_owned()).filter(|s| !s.is_empty());
    let outcome =
        if guest.is_admin() { web.storage.adopt(&guest.principal.account, Adoption { disk: key.clone(), serial }).await } else { Err(role(&guest)) };
    let problem = match outcome {
        Ok(_) => return respond::go(&headers, "/ui/storage"),
        Err(problem) => problem,
    };
    match web.storage.plan(&key).await {
        Ok(plan) => show(&web, &guest, &headers, plan, Some(&problem)).await,
        Err(_) => refuse(&web, guest.look, &headers, &problem),
    }
}

async fn show(web: &Web, guest: &Guest, headers: &HeaderMap, plan: AdoptionPlan, refused: Option<&Problem>) -> Response {
    let t = guest.look.lang.text();
    let page = match Shell::new(web, guest, t.storage_adopt_title, "").await {
        Ok(page) => page,
        Err(problem) => return refuse(web, guest.look, headers, &problem),
    };
    let of_field = refused.filter(|problem| problem.kind == ProblemKind::Invalid);
    let field = Field::text("serial", t.storage_adopt_serial).hint(t.storage_adopt_serial_hint).focus().error(of_field.map(Problem::full_text));
    let ask = Ask {
        page,
        url: format!("/ui/storage/disks/{}/adopt", plan.disk),
        plan: plan.sentences,
        field: plan.confirm_serial.then_some(field),
        refusal: refused.filter(|_| of_field.is_none()).map(|problem| refusal::words(problem, t)),
    };
    let status = refused.map_or(StatusCode::OK, refusal::status);
    if respond::is_htmx(headers) { respond::html(status, &ask.as_ask()) } else { respond::html(status, &ask) }
}

/// `GET /ui/storage/volumes/{id}/forget`: the question.
pub(crate) async fn ask_forget(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    match question(&web, &guest, &id).await {
        Ok(question) => ask::show(&web, &guest, &headers, question, None).await,
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/storage/volumes/{id}/forget`
pub(crate) async fn forget(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let disk = DiskId::from_stored(id.clone());
    let outcome = if guest.is_admin() { web.storage.forget(&guest.principal.account, &disk).await } else { Err(role(&guest)) };
    let problem = match outcome {
        Ok(()) => return respond::go(&headers, "/ui/storage"),
        Err(problem) => problem,
    };
    match question(&web, &guest, &id).await {
        Ok(question) => ask::show(&web, &guest, &headers, question, Some(&problem)).await,
        Err(gone) => refuse(&web, guest.look, &headers, &gone),
    }
}

async fn question(web: &Web, guest: &Guest, id: &str) -> Result<Question, Problem> {
    let t = guest.look.lang.text();
    let overview = web.storage.overview().await?;
    let volume = overview.volumes.iter().find(|v| v.recorded.id.as_str() == id);
    let volume = volume.ok_or_else(|| Problem::new(ProblemKind::NotFound, "No recorded disk has this id."))?;
    let name = volume.recorded.model.clone().unwrap_or_else(|| volume.recorded.label.clone());
    Ok(Question {
        url: format!("/ui/storage/volumes/{}/forget", volume.recorded.id),
        question: t.storage_forget(&name),
        plan: vec![t.storage_forget_models.to_owned(), t.storage_forget_keeps.to_owned()],
        verb: t.storage_forget_verb,
        back: "/ui/storage".to_owned(),
    })
}
