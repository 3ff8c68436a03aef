//! `/ui/keys`: inference keys with their usage; create (the secret is shown once), revoke.

use askama::Template;
use axum::{
    Form,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use serde::Deserialize;
use warden_domain::{Problem, ProblemKind, clock, ids::KeyId, key::Key};

use crate::{
    Web,
    ask::{self, Question},
    assets::url,
    catalogue::Text,
    field::Field,
    model,
    refusal::{self, refuse},
    respond,
    shell::Shell,
    visit::Guest,
    wording::{self, Moment, UNKNOWN},
};

struct KeyRow {
    id: String,
    name: String,
    prefix: String,
    revoked: bool,
    created: Moment,
    used: Option<Moment>,
    requests: String,
    prompt: String,
    cached: String,
    completion: String,
    uncounted: String,
    revoke_url: String,
}

impl KeyRow {
    fn of(key: &Key, is_admin: bool, now: Timestamp, t: &Text) -> Self {
        let usage = &key.usage;
        // Requests without counts say nothing about tokens: with no other request the sums are unknown, not nought.
        let counted = usage.requests > usage.requests_without_counts;
        let sum = |n: u64| if counted || usage.requests == 0 { wording::grouped(n) } else { UNKNOWN.to_owned() };
        Self {
            id: key.id.to_string(),
            name: key.name.clone(),
            prefix: key.prefix.clone(),
            revoked: key.revoked_at.is_some() || !is_admin,
            created: Moment::new(key.created_at, now, t),
            used: key.last_used_at.map(|at| Moment::new(at, now, t)),
            requests: wording::grouped(usage.requests),
            prompt: sum(usage.prompt.0),
            cached: if usage.cached.0 > 0 { t.keys_cached(wording::grouped(usage.cached.0)) } else { String::new() },
            completion: sum(usage.completion.0),
            uncounted: if usage.requests_without_counts > 0 { t.keys_uncounted(usage.requests_without_counts) } else { String::new() },
            revoke_url: format!("/ui/keys/{}/revoke", key.id),
        }
    }
}

#[derive(Template)]
#[template(path = "keys/list.html", blocks = ["live"])]
pub(crate) struct List {
    page: Shell,
    rows: Vec<KeyRow>,
}

impl List {
    pub(crate) async fn look(web: &Web, guest: &Guest) -> Result<Self, Problem> {
        let t = guest.look.lang.text();
        let now = clock::now();
        let mut keys = web.keys.list().await?;
        keys.sort_by_key(|key| key.revoked_at.is_some());
        Ok(Self {
            rows: keys.iter().map(|key| KeyRow::of(key, guest.is_admin(), now, t)).collect(),
            page: Shell::new(web, guest, t.keys_title, "/ui/live/keys").await?,
        })
    }

    pub(crate) const fn shell(&self) -> &Shell {
        &self.page
    }
}

#[derive(Template)]
#[template(path = "keys/new.html", blocks = ["ask"])]
struct New {
    page: Shell,
    field: Field,
    refusal: Option<(String, String)>,
}

#[derive(Template)]
#[template(path = "keys/made.html")]
struct Made {
    t: &'static Text,
    title: String,
    secret: String,
    example: String,
}

/// `GET /ui/keys`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    match List::look(&web, &guest).await {
        Ok(list) => respond::page(&list),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `GET /ui/keys/new`: the form, in the dialog or as a page.
pub(crate) async fn new(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    form(&web, &guest, &headers, "", None).await
}

#[derive(Deserialize)]
pub(crate) struct Named {
    #[serde(default)]
    name: String,
}

/// `POST /ui/keys`: makes a key and shows its secret, this once.
pub(crate) async fn create(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(named): Form<Named>) -> Response {
    let t = guest.look.lang.text();
    let made = if guest.is_admin() { web.keys.create(&guest.principal.account, named.name.trim()).await } else { Err(refusal::role(&guest)) };
    match made {
        Ok(made) => {
            let secret = made.secret.expose().clone();
            let served = web.serving.table().models.keys().next().cloned();
            let example = model::example(&guest.origin, served.as_deref().unwrap_or("MODEL"), &secret, t);
            respond::html(StatusCode::CREATED, &Made { t, title: t.keys_made(&made.key.name), secret, example })
        }
        Err(problem) => form(&web, &guest, &headers, &named.name, Some(&problem)).await,
    }
}

async fn form(web: &Web, guest: &Guest, headers: &HeaderMap, name: &str, refused: Option<&Problem>) -> Response {
    let t = guest.look.lang.text();
    let page = match Shell::new(web, guest, t.keys_new_title, "").await {
        Ok(page) => page,
        Err(problem) => return refuse(web, guest.look, headers, &problem),
    };
    let of_field = refused.filter(|problem| matches!(problem.kind, ProblemKind::Invalid | ProblemKind::Conflict));
    let field = Field::text("name", t.keys_new_name)
        .value(name)
        .hint(t.keys_new_hint)
        .placeholder(t.keys_new_placeholder)
        .focus()
        .error(of_field.map(Problem::full_text));
    let refusal = refused.filter(|_| of_field.is_none()).map(|problem| refusal::words(problem, t));
    let status = refused.map_or(StatusCode::OK, refusal::status);
    let new = New { page, field, refusal };
    if respond::is_htmx(headers) { respond::html(status, &new.as_ask()) } else { respond::html(status, &new) }
}

/// `GET /ui/keys/{id}/revoke`: the question.
pub(crate) async fn ask_revoke(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    match question(&web, &guest, &id).await {
        Ok(question) => ask::show(&web, &guest, &headers, question, None).await,
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/keys/{id}/revoke`
pub(crate) async fn revoke(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let outcome = if guest.is_admin() { web.keys.revoke(&KeyId::from_stored(id.clone())).await } else { Err(refusal::role(&guest)) };
    let problem = match outcome {
        Ok(_) if respond::is_htmx(&headers) => return respond::done(),
        Ok(_) => return respond::see_other("/ui/keys").into_response(),
        Err(problem) => problem,
    };
    match question(&web, &guest, &id).await {
        Ok(question) => ask::show(&web, &guest, &headers, question, Some(&problem)).await,
        Err(gone) => refuse(&web, guest.look, &headers, &gone),
    }
}

async fn question(web: &Web, guest: &Guest, id: &str) -> Result<Question, Problem> {
    let t = guest.look.lang.text();
    let keys = web.keys.list().await?;
    let key = keys.iter().find(|key| key.id.as_str() == id).ok_or_else(|| Problem::new(ProblemKind::NotFound, format!("There is no key {id}.")))?;
    Ok(Question {
        url: format!("/ui/keys/{}/revoke", key.id),
        question: t.ask_revoke(&key.name),
        plan: vec![t.ask_revoke_now.to_owned(), t.ask_revoke_ever.to_owned()],
        verb: t.ask_revoke_verb,
        back: "/ui/keys".to_owned(),
    })
}
