//! `/ui/network/confirm`: the page on the new address. Nobody is signed in there yet; the token in its address is the proof, and one
//! press of the button (never the mere look, which a browser may do ahead of its user) confirms.

use askama::Template;
use axum::{
    Form,
    extract::{Query, State},
    http::StatusCode,
    response::Response,
};
use serde::Deserialize;
use warden_access::http::Visitor;
use warden_domain::Secret;

use crate::{
    Web,
    assets::url,
    refusal::{status, words},
    respond,
    shell::Shell,
    visit::Look,
};

#[derive(Template)]
#[template(path = "network/confirm.html")]
struct Confirm {
    page: Shell,
    token: String,
    kept: Option<String>,
    refusal: Option<(String, String)>,
}

/// What the address or the form carries.
#[derive(Deserialize)]
pub(crate) struct Token {
    #[serde(default = "nothing")]
    token: Secret<String>,
}

fn nothing() -> Secret<String> {
    Secret::new(String::new())
}

/// `GET /ui/network/confirm?token=…`
pub(crate) async fn page(State(web): State<Web>, look: Look, Query(token): Query<Token>) -> Response {
    let t = look.lang.text();
    let page = Shell::door(&web, look, "/ui/network/confirm", t.network_confirm_title);
    respond::page(&Confirm { page, token: token.token.expose().clone(), kept: None, refusal: None })
}

/// `POST /ui/network/confirm`
pub(crate) async fn submit(State(web): State<Web>, look: Look, visitor: Visitor, Form(token): Form<Token>) -> Response {
    let t = look.lang.text();
    let page = Shell::door(&web, look, "/ui/network/confirm", t.network_confirm_title);
    let token = token.token.expose().clone();
    match web.network.confirm(&token, visitor.local).await {
        Ok(last) => respond::html(StatusCode::OK, &Confirm { page, token: String::new(), kept: Some(last.sentence), refusal: None }),
        Err(problem) => respond::html(status(&problem), &Confirm { page, token, kept: None, refusal: Some(words(&problem, t)) }),
    }
}
