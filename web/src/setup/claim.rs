//! `/ui/setup`, step 1: claim code, admin name, password. A plain form; open only until an admin exists.

use askama::Template;
use axum::{
    Form,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde::Deserialize;
use warden_access::http::{Visitor, session_cookie};
use warden_domain::{Problem, ProblemKind, Secret};

use crate::{
    Profile, Web,
    assets::url,
    field::Field,
    refusal::{refuse, status, words},
    respond,
    shell::Shell,
    visit::Look,
};

#[derive(Template)]
#[template(path = "setup/claim.html")]
struct Claim {
    page: Shell,
    step: usize,
    lead: String,
    refusal: Option<(String, String)>,
    fields: Vec<Field>,
}

/// `GET /ui/setup`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, look: Look, visitor: Visitor) -> Response {
    match web.accounts.setup_state().await {
        Ok(setup) if setup.done => respond::go(&headers, if visitor.principal.is_some() { "/ui/setup/model" } else { "/ui/login" }),
        Ok(_) => show(&web, look, "", "", None),
        Err(problem) => refuse(&web, look, &headers, &problem),
    }
}

/// What the form sends.
#[derive(Deserialize)]
pub(crate) struct Given {
    #[serde(default)]
    claim_code: String,
    #[serde(default)]
    username: String,
    #[serde(default = "nothing")]
    password: Secret<String>,
}

fn nothing() -> Secret<String> {
    Secret::new(String::new())
}

/// `POST /ui/setup`: makes the admin and signs in.
pub(crate) async fn submit(State(web): State<Web>, headers: HeaderMap, look: Look, visitor: Visitor, Form(given): Form<Given>) -> Response {
    match web.accounts.claim(visitor.client, given.claim_code.trim(), given.username.trim(), &given.password).await {
        Ok(session) => {
            let mut response = respond::see_other("/ui/setup/model");
            response.headers_mut().append(header::SET_COOKIE, session_cookie(&session, visitor.secure));
            response
        }
        Err(problem) if problem.kind == ProblemKind::Conflict => refuse(&web, look, &headers, &problem),
        Err(problem) => show(&web, look, given.claim_code.trim(), given.username.trim(), Some(&problem)),
    }
}

fn show(web: &Web, look: Look, code: &str, username: &str, refused: Option<&Problem>) -> Response {
    let t = look.lang.text();
    let wrong_code = refused.is_some_and(|problem| problem.kind == ProblemKind::Forbidden);
    let code = Field::text("claim_code", t.setup_code).value(if wrong_code { "" } else { code }).code();
    let claim = Claim {
        page: Shell::door(web, look, "/ui/setup", t.setup_claim_title),
        step: 1,
        lead: match web.profile {
            Profile::Appliance => t.setup_claim_lead(web.names.present()),
            Profile::Dev => t.setup_claim_lead_dev(web.names.present()),
        },
        refusal: refused.map(|problem| words(problem, t)),
        fields: vec![
            if refused.is_none() || wrong_code { code.focus() } else { code },
            Field::text("username", t.setup_user).value(username).hint(t.setup_user_hint).autocomplete("username"),
            Field::password("password", t.setup_password, "new-password"),
        ],
    };
    let mut response = respond::html(refused.map_or(StatusCode::OK, status), &claim);
    if let Some(after) = refused.and_then(|problem| problem.retry_after) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
    }
    response
}
