//! The question before something is stopped, removed or revoked: what exactly will happen, then one button.

use askama::Template;
use axum::{
    http::{HeaderMap, StatusCode},
    response::Response,
};
use warden_domain::Problem;

use crate::{
    Web,
    assets::url,
    refusal::{refuse, status, words},
    respond,
    shell::Shell,
    visit::Guest,
};

#[derive(Template)]
#[template(path = "ask.html", blocks = ["ask"])]
pub(crate) struct Ask {
    page: Shell,
    url: String,
    question: String,
    plan: Vec<String>,
    verb: &'static str,
    back: String,
    refusal: Option<(String, String)>,
}

/// What a question says.
pub(crate) struct Question {
    /// Where "yes" is posted to.
    pub(crate) url: String,
    pub(crate) question: String,
    pub(crate) plan: Vec<String>,
    pub(crate) verb: &'static str,
    /// Where "no" leads without a dialog.
    pub(crate) back: String,
}

/// Shows a question: in the dialog for htmx, else as a page. After a refusal it is shown again with the reason.
pub(crate) async fn show(web: &Web, guest: &Guest, headers: &HeaderMap, question: Question, refused: Option<&Problem>) -> Response {
    let t = guest.look.lang.text();
    let page = match Shell::new(web, guest, &question.question, "").await {
        Ok(page) => page,
        Err(problem) => return refuse(web, guest.look, headers, &problem),
    };
    let Question { url, question, plan, verb, back } = question;
    let ask = Ask { page, url, question, plan, verb, back, refusal: refused.map(|problem| words(problem, t)) };
    let status = refused.map_or(StatusCode::OK, status);
    if respond::is_htmx(headers) { respond::html(status, &ask.as_ask()) } else { respond::html(status, &ask) }
}
