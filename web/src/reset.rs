//! `/ui/login/reset`: after an admin reset at the machine's screen, its code sets a new password. A plain form, no script needed.

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
    Web,
    assets::url,
    field::Field,
    refusal::{status, words},
    respond,
    shell::Shell,
    visit::Look,
};

#[derive(Template)]
#[template(path = "reset.html")]
struct Reset {
    page: Shell,
    open: bool,
    refusal: Option<(String, String)>,
    fields: Vec<Field>,
}

/// `GET /ui/login/reset`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, look: Look, visitor: Visitor) -> Response {
    if visitor.principal.is_some() {
        return respond::go(&headers, "/ui/");
    }
    show(&web, look, "", "", None).await
}

/// What the form sends.
#[derive(Deserialize)]
pub(crate) struct Given {
    #[serde(default)]
    reset_code: String,
    #[serde(default)]
    username: String,
    #[serde(default = "nothing")]
    password: Secret<String>,
}

fn nothing() -> Secret<String> {
    Secret::new(String::new())
}

/// `POST /ui/login/reset`: sets the password and signs in.
pub(crate) async fn submit(State(web): State<Web>, look: Look, visitor: Visitor, Form(given): Form<Given>) -> Response {
    let (code, name) = (given.reset_code.trim(), given.username.trim());
    match web.recovery.reset_password(visitor.client, code, name, &given.password).await {
        Ok(session) => {
            let mut response = respond::see_other("/ui/");
            response.headers_mut().append(header::SET_COOKIE, session_cookie(&session, visitor.secure));
            response
        }
        Err(problem) => show(&web, look, code, name, Some(&problem)).await,
    }
}

async fn show(web: &Web, look: Look, code: &str, username: &str, refused: Option<&Problem>) -> Response {
    let t = look.lang.text();
    let wrong_code = refused.is_some_and(|problem| problem.kind == ProblemKind::Forbidden);
    let code = Field::text("reset_code", t.reset_code).value(if wrong_code { "" } else { code }).hint(t.reset_code_hint).code();
    let reset = Reset {
        page: Shell::door(web, look, "/ui/login/reset", t.reset_title),
        open: web.recovery.reset_code().await.is_some(),
        refusal: refused.map(|problem| words(problem, t)),
        fields: vec![
            code.focus(),
            Field::text("username", t.login_user).value(username).autocomplete("username"),
            Field::password("password", t.reset_password, "new-password").hint(t.setup_rule_length),
        ],
    };
    let mut response = respond::html(refused.map_or(StatusCode::OK, status), &reset);
    if let Some(after) = refused.and_then(|problem| problem.retry_after) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
    }
    response
}
