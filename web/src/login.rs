//! `/ui/login` and `/ui/logout`: plain forms, no script needed to get in.

use askama::Template;
use axum::{
    Form,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use axum_extra::extract::CookieJar;
use serde::Deserialize;
use warden_access::http::{COOKIE, Visitor, expired_cookie, session_cookie};
use warden_domain::{Problem, ProblemKind, Secret};

use crate::{
    Web,
    assets::url,
    field::Field,
    refusal::{refuse, status, words},
    respond,
    shell::Shell,
    visit::Look,
};

#[derive(Template)]
#[template(path = "login.html")]
struct Login {
    page: Shell,
    lead: String,
    refusal: Option<(String, String)>,
    fields: Vec<Field>,
    next: String,
    /// A password reset is open.
    reset: bool,
}

#[derive(Deserialize)]
pub(crate) struct Next {
    #[serde(default)]
    next: String,
}

/// `GET /ui/login?next=…`. Whoever is signed in goes on; an unclaimed box leads to setup.
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, look: Look, visitor: Visitor, Query(to): Query<Next>) -> Response {
    if visitor.principal.is_some() {
        return respond::go(&headers, respond::own_path(&to.next));
    }
    match web.accounts.setup_state().await {
        Ok(setup) if !setup.done => respond::go(&headers, "/ui/setup"),
        Ok(_) => show(&web, look, "", &to.next, None).await,
        Err(problem) => refuse(&web, look, &headers, &problem),
    }
}

/// What the form sends.
#[derive(Deserialize)]
pub(crate) struct Credentials {
    #[serde(default)]
    username: String,
    #[serde(default = "nothing")]
    password: Secret<String>,
    #[serde(default)]
    next: String,
}

fn nothing() -> Secret<String> {
    Secret::new(String::new())
}

/// `POST /ui/login`
pub(crate) async fn submit(State(web): State<Web>, look: Look, visitor: Visitor, Form(given): Form<Credentials>) -> Response {
    match web.accounts.login(visitor.client, given.username.trim(), &given.password).await {
        Ok(session) => {
            let mut response = respond::see_other(respond::own_path(&given.next));
            response.headers_mut().append(header::SET_COOKIE, session_cookie(&session, visitor.secure));
            response
        }
        Err(problem) => show(&web, look, &given.username, &given.next, Some(&problem)).await,
    }
}

async fn show(web: &Web, look: Look, username: &str, next: &str, refused: Option<&Problem>) -> Response {
    let t = look.lang.text();
    let user = Field::text("username", t.login_user).value(username).autocomplete("username");
    let password = Field::password("password", t.login_password, "current-password");
    let login = Login {
        page: Shell::door(web, look, "/ui/login", t.login_title),
        lead: t.login_lead(web.names.present()),
        refusal: refused.map(|problem| words(problem, t)),
        fields: if username.is_empty() { vec![user.focus(), password] } else { vec![user, password.focus()] },
        next: respond::own_path(next).to_owned(),
        reset: web.recovery.reset_code().await.is_some(),
    };
    let status = refused.map_or(StatusCode::OK, status);
    let mut response = respond::html(status, &login);
    if let Some(after) = refused.filter(|p| p.kind == ProblemKind::TooManyRequests).and_then(|p| p.retry_after) {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
    }
    response
}

/// `POST /ui/logout`: ends the session on the box, not only in the browser.
pub(crate) async fn leave(State(web): State<Web>, headers: HeaderMap, look: Look, visitor: Visitor) -> Response {
    if let Some(cookie) = CookieJar::from_headers(&headers).get(COOKIE)
        && let Err(problem) = web.accounts.logout(cookie.value()).await
    {
        return refuse(&web, look, &headers, &problem);
    }
    let mut response = respond::go(&headers, "/ui/login");
    response.headers_mut().append(header::SET_COOKIE, expired_cookie(visitor.secure));
    response
}
