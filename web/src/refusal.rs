//! A `Problem` on a page: as a notice when htmx asked, else as a page of its own.

use askama::Template;
use axum::{
    http::{HeaderMap, HeaderValue, StatusCode},
    response::Response,
};
use warden_domain::{Problem, ProblemKind};

use crate::{
    Web,
    assets::url,
    catalogue::Text,
    respond,
    shell::Shell,
    visit::{Guest, Look},
};

#[derive(Template)]
#[template(path = "flash.html")]
struct Flash<'a> {
    title: &'a str,
    body: &'a str,
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    page: Shell,
    heading: &'a str,
    sentence: &'a str,
}

/// The status of a problem.
pub(crate) fn status(problem: &Problem) -> StatusCode {
    StatusCode::from_u16(problem.kind.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Sentence and way out, for a notice.
pub(crate) fn words(problem: &Problem, t: &Text) -> (String, String) {
    match &problem.hint {
        Some(hint) => (problem.message.clone(), hint.clone()),
        None => (t.error_refused.to_owned(), problem.message.clone()),
    }
}

/// Answers with a problem in the way it was asked for.
pub(crate) fn refuse(web: &Web, look: Look, headers: &HeaderMap, problem: &Problem) -> Response {
    let t = look.lang.text();
    let mut response = if respond::is_htmx(headers) {
        let (title, body) = words(problem, t);
        notice(status(problem), &title, &body)
    } else if problem.kind == ProblemKind::NotFound {
        error_page(web, look, StatusCode::NOT_FOUND, t.error_gone, &problem.full_text())
    } else {
        error_page(web, look, status(problem), t.error_failed, &problem.full_text())
    };
    if let Some(after) = problem.retry_after {
        response.headers_mut().insert("retry-after", HeaderValue::from(after.as_secs().max(1)));
    }
    response
}

/// A notice at the top of the page that is open, wherever the call wanted its answer.
pub(crate) fn notice(status: StatusCode, title: &str, body: &str) -> Response {
    let mut response = respond::html(status, &Flash { title, body });
    response.headers_mut().insert("hx-retarget", HeaderValue::from_static("#flash"));
    response.headers_mut().insert("hx-reswap", HeaderValue::from_static("innerHTML show:top"));
    response
}

/// Refuses what only other roles may do.
pub(crate) fn role(guest: &Guest) -> Problem {
    let t = guest.look.lang.text();
    Problem::new(ProblemKind::Forbidden, t.error_role).hint(t.error_role_body)
}

/// A page that holds one sentence and the way back.
pub(crate) fn error_page(web: &Web, look: Look, status: StatusCode, heading: &str, sentence: &str) -> Response {
    let page = Shell::door(web, look, "/ui/", heading);
    respond::html(status, &ErrorPage { page, heading, sentence })
}
