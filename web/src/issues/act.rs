//! What can be done with issues: look again, fix, say that one knows, take that back.

use askama::Template;
use axum::{
    Form,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::Deserialize;
use warden_domain::{Problem, ProblemKind, ids::IssueId};

use super::{model_names, title};
use crate::{
    Web,
    assets::url,
    field::Field,
    refusal::{self, refuse},
    respond,
    shell::Shell,
    visit::Guest,
};

#[derive(Template)]
#[template(path = "issues/dismiss.html", blocks = ["ask"])]
struct Dismiss {
    page: Shell,
    url: String,
    title: String,
    field: Field,
    refusal: Option<(String, String)>,
}

/// What the form of a dismissal sends.
#[derive(Default, Deserialize)]
pub(crate) struct Reason {
    #[serde(default)]
    reason: String,
}

/// `POST /ui/issues/check`
pub(crate) async fn check(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let outcome = if guest.may_change() { web.issues.check_now().await } else { Err(refusal::role(&guest)) };
    done_or(&web, &guest, &headers, outcome)
}

/// `POST /ui/issues/{id}/fix`
pub(crate) async fn fix(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let id = IssueId::from_stored(id);
    let outcome = if guest.may_change() { web.issues.fix(&guest.principal.account, &id).await } else { Err(refusal::role(&guest)) };
    done_or(&web, &guest, &headers, outcome)
}

/// `POST /ui/issues/{id}/recall`
pub(crate) async fn recall(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let id = IssueId::from_stored(id);
    let outcome = if guest.may_change() { web.issues.recall(&guest.principal.account, &id).await.map(drop) } else { Err(refusal::role(&guest)) };
    done_or(&web, &guest, &headers, outcome)
}

/// `GET /ui/issues/{id}/dismiss`: the question.
pub(crate) async fn ask_dismiss(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    question(&web, &guest, &headers, &id, "", None).await
}

/// `POST /ui/issues/{id}/dismiss`
pub(crate) async fn dismiss(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>, Form(given): Form<Reason>) -> Response {
    let key = IssueId::from_stored(id.clone());
    let outcome = if guest.may_change() {
        web.issues.dismiss(&guest.principal.account, &key, Some(given.reason.as_str())).await
    } else {
        Err(refusal::role(&guest))
    };
    match outcome {
        Ok(_) if respond::is_htmx(&headers) => respond::done(),
        Ok(_) => respond::see_other("/ui/issues"),
        Err(problem) => question(&web, &guest, &headers, &id, &given.reason, Some(&problem)).await,
    }
}

async fn question(web: &Web, guest: &Guest, headers: &HeaderMap, id: &str, reason: &str, refused: Option<&Problem>) -> Response {
    match make(web, guest, id, reason, refused).await {
        Ok(page) => {
            let status = refused.map_or(StatusCode::OK, refusal::status);
            if respond::is_htmx(headers) { respond::html(status, &page.as_ask()) } else { respond::html(status, &page) }
        }
        Err(problem) => refuse(web, guest.look, headers, &problem),
    }
}

async fn make(web: &Web, guest: &Guest, id: &str, reason: &str, refused: Option<&Problem>) -> Result<Dismiss, Problem> {
    let t = guest.look.lang.text();
    let board = web.issues.board();
    let issue = board.open.iter().find(|issue| issue.id.as_str() == id).ok_or_else(|| Problem::new(ProblemKind::NotFound, t.issues_gone))?;
    let names = model_names(web).await?;
    let of_field = refused.filter(|problem| problem.kind == ProblemKind::Invalid);
    Ok(Dismiss {
        page: Shell::new(web, guest, t.issues_dismiss_title, "").await?,
        url: format!("/ui/issues/{}/dismiss", issue.id),
        title: title(issue, names.get(&issue.finding.subject).map(String::as_str), t),
        field: Field::text("reason", t.issues_reason)
            .value(reason)
            .hint(t.issues_reason_hint)
            .optional(t.new_optional)
            .focus()
            .error(of_field.map(Problem::full_text)),
        refusal: refused.filter(|_| of_field.is_none()).map(|problem| refusal::words(problem, t)),
    })
}

/// Done, and the page follows by itself; or why not.
fn done_or(web: &Web, guest: &Guest, headers: &HeaderMap, outcome: Result<(), Problem>) -> Response {
    match outcome {
        Ok(()) if respond::is_htmx(headers) => respond::done(),
        Ok(()) => respond::see_other("/ui/issues"),
        Err(problem) => refuse(web, guest.look, headers, &problem),
    }
}
