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
use warden_domain::{
    Problem, ProblemKind, clock,
    ids::KeyId,
    key::{Key, Priority},
};

use crate::{
    Web,
    ask::{self, Question},
    assets::url,
    catalogue::Text,
    field::{Choice, Field},
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
    may_change: bool,
    created: Moment,
    used: Option<Moment>,
    requests: String,
    prompt: String,
    cached: String,
    completion: String,
    uncounted: String,
    priority: String,
    priority_url: String,
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
            revoked: key.revoked_at.is_some(),
            may_change: is_admin && key.revoked_at.is_none(),
            created: Moment::new(key.created_at, now, t),
            used: key.last_used_at.map(|at| Moment::new(at, now, t)),
            requests: wording::grouped(usage.requests),
            prompt: sum(usage.prompt.0),
            cached: if usage.cached.0 > 0 { t.keys_cached(wording::grouped(usage.cached.0)) } else { String::new() },
            completion: sum(usage.completion.0),
            uncounted: if usage.requests_without_counts > 0 { t.keys_uncounted(usage.requests_without_counts) } else { String::new() },
            priority: t.keys_priority_of(key.priority.number()),
            priority_url: format!("/ui/keys/{}/priority", key.id),
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
    priority: Choice,
    refusal: Option<(String, String)>,
}

#[derive(Template)]
#[template(path = "keys/priority.html", blocks = ["ask"])]
struct Ranked {
    page: Shell,
    heading: String,
    url: String,
    priority: Choice,
    refusal: Option<(String, String)>,
}

/// The ten priorities, the highest first.
fn priorities(chosen: Priority, t: &'static Text) -> Choice {
    let options = vec![
        ("9", t.keys_priority_first),
        ("8", "8"),
        ("7", "7"),
        ("6", "6"),
        ("5", t.keys_priority_usual),
        ("4", "4"),
        ("3", "3"),
        ("2", "2"),
        ("1", "1"),
        ("0", t.keys_priority_last),
    ];
    Choice { id: "priority", label: t.keys_priority, chosen: chosen.number().to_string(), options }
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
    form(&web, &guest, &headers, &Named::default(), None).await
}

#[derive(Default, Deserialize)]
pub(crate) struct Named {
    #[serde(default)]
    name: String,
    #[serde(default)]
    priority: String,
}

impl Named {
    fn priority(&self) -> Result<Priority, Problem> {
        if self.priority.is_empty() {
            return Ok(Priority::USUAL);
        }
        // What is no number at all is no priority either.
        Priority::new(self.priority.parse().unwrap_or(u64::MAX))
    }
}

/// `POST /ui/keys`: makes a key and shows its secret, this once.
pub(crate) async fn create(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(named): Form<Named>) -> Response {
    let t = guest.look.lang.text();
    let made = async {
        if !guest.is_admin() {
            return Err(refusal::role(&guest));
        }
        web.keys.create(&guest.principal.account, named.name.trim(), named.priority()?).await
    };
    let made = made.await;
    match made {
        Ok(made) => {
            let secret = made.secret.expose().clone();
            let served = web.serving.table().models.keys().next().cloned();
            let example = model::example(&guest.origin, served.as_deref().unwrap_or("MODEL"), &secret, t);
            respond::html(StatusCode::CREATED, &Made { t, title: t.keys_made(&made.key.name), secret, example })
        }
        Err(problem) => form(&web, &guest, &headers, &named, Some(&problem)).await,
    }
}

async fn form(web: &Web, guest: &Guest, headers: &HeaderMap, named: &Named, refused: Option<&Problem>) -> Response {
    let t = guest.look.lang.text();
    let page = match Shell::new(web, guest, t.keys_new_title, "").await {
        Ok(page) => page,
        Err(problem) => return refuse(web, guest.look, headers, &problem),
    };
    let of_field = refused.filter(|problem| matches!(problem.kind, ProblemKind::Invalid | ProblemKind::Conflict));
    let field = Field::text("name", t.keys_new_name)
        .value(named.name.as_str())
        .hint(t.keys_new_hint)
        .placeholder(t.keys_new_placeholder)
        .focus()
        .error(of_field.map(Problem::full_text));
    let refusal = refused.filter(|_| of_field.is_none()).map(|problem| refusal::words(problem, t));
    let status = refused.map_or(StatusCode::OK, refusal::status);
    let priority = priorities(named.priority().unwrap_or_default(), t);
    let new = New { page, field, priority, refusal };
    if respond::is_htmx(headers) { respond::html(status, &new.as_ask()) } else { respond::html(status, &new) }
}

/// `GET /ui/keys/{id}/priority`: the choice, in the dialog or as a page.
pub(crate) async fn ask_priority(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    ranked(&web, &guest, &headers, &id, None).await
}

/// `POST /ui/keys/{id}/priority`
pub(crate) async fn set_priority(
    State(web): State<Web>,
    headers: HeaderMap,
    guest: Guest,
    Path(id): Path<String>,
    Form(named): Form<Named>,
) -> Response {
    let set = async {
        if !guest.is_admin() {
            return Err(refusal::role(&guest));
        }
        web.keys.set_priority(&guest.principal.account, &KeyId::from_stored(id.clone()), named.priority()?).await
    };
    match set.await {
        Ok(_) if respond::is_htmx(&headers) => respond::done(),
        Ok(_) => respond::see_other("/ui/keys").into_response(),
        Err(problem) => ranked(&web, &guest, &headers, &id, Some(&problem)).await,
    }
}

async fn ranked(web: &Web, guest: &Guest, headers: &HeaderMap, id: &str, refused: Option<&Problem>) -> Response {
    let t = guest.look.lang.text();
    let made = async {
        let key = one(web, id).await?;
        let heading = t.keys_priority_title(&key.name);
        Ok(Ranked {
            page: Shell::new(web, guest, &heading, "").await?,
            heading,
            url: format!("/ui/keys/{}/priority", key.id),
            priority: priorities(key.priority, t),
            refusal: refused.map(|problem| refusal::words(problem, t)),
        })
    };
    match made.await {
        Ok(ranked) => {
            let status = refused.map_or(StatusCode::OK, refusal::status);
            if respond::is_htmx(headers) { respond::html(status, &ranked.as_ask()) } else { respond::html(status, &ranked) }
        }
        Err(problem) => refuse(web, guest.look, headers, &problem),
    }
}

async fn one(web: &Web, id: &str) -> Result<Key, Problem> {
    let found = web.keys.list().await?.into_iter().find(|key| key.id.as_str() == id);
    found.ok_or_else(|| Problem::new(ProblemKind::NotFound, format!("There is no key {id}.")))
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
    let key = one(web, id).await?;
    Ok(Question {
        url: format!("/ui/keys/{}/revoke", key.id),
        question: t.ask_revoke(&key.name),
        plan: vec![t.ask_revoke_now.to_owned(), t.ask_revoke_ever.to_owned()],
        verb: t.ask_revoke_verb,
        back: "/ui/keys".to_owned(),
    })
}
