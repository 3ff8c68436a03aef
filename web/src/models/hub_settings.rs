//! `/ui/models/hub/settings`: the hub's address, the access token, and how fast downloads may be.

use askama::Template;
use axum::{
    Form,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::Deserialize;
use warden_domain::{Problem, ProblemKind, Secret, hub::HubChange, units::Bytes};

use super::asked::number;
use crate::{
    Web,
    assets::url,
    catalogue::Text,
    field::Field,
    refusal::{self, refuse, role},
    respond,
    shell::Shell,
    visit::Guest,
};

#[derive(Template)]
#[template(path = "models/hub_settings.html")]
struct Page {
    page: Shell,
    fields: Vec<Field>,
    has_token: bool,
}

/// What the form sends.
#[derive(Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    endpoint: String,
    token: Option<Secret<String>>,
    #[serde(default)]
    limit: String,
    drop_token: Option<String>,
}

const MIB: u64 = 1 << 20;

impl Wanted {
    fn change(self, t: &Text) -> Result<HubChange, Problem> {
        let limit: Option<u64> = number(&self.limit, t.hub_limit, t)?;
        let limit = limit.filter(|mib| *mib > 0).map(|mib| Bytes(mib.saturating_mul(MIB)));
        // An empty field keeps the token that is there: it is never sent to the page.
        let token = match (self.drop_token, self.token.filter(|token| !token.expose().trim().is_empty())) {
            (_, Some(token)) => Some(token),
            (Some(_), None) => Some(Secret::new(String::new())),
            (None, None) => None,
        };
        Ok(HubChange { endpoint: Some(self.endpoint), token, limit: Some(limit) })
    }
}

/// `GET /ui/models/hub/settings`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    match look(&web, &guest).await {
        Ok(page) => respond::page(&page),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

async fn look(web: &Web, guest: &Guest) -> Result<Page, Problem> {
    if !guest.is_admin() {
        return Err(role(guest));
    }
    let t = guest.look.lang.text();
    let settings = web.hub.settings().await?;
    let limit = settings.limit.map(|limit| limit.0.div_ceil(MIB).to_string()).unwrap_or_default();
    Ok(Page {
        fields: vec![
            Field::text("endpoint", t.hub_endpoint).hint(t.hub_endpoint_hint).optional(t.new_optional).value(settings.endpoint).code(),
            Field::password("token", t.hub_token, "off")
                .hint(if settings.has_token { t.hub_token_kept } else { t.hub_token_hint })
                .optional(t.new_optional),
            Field::text("limit", t.hub_limit).hint(t.hub_limit_hint).optional(t.new_optional).value(limit),
        ],
        has_token: settings.has_token,
        page: Shell::new(web, guest, t.hub_settings, "/ui/live/strip").await?,
    })
}

/// `POST /ui/models/hub/settings`
pub(crate) async fn submit(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(wanted): Form<Wanted>) -> Response {
    let t = guest.look.lang.text();
    let outcome = async {
        if !guest.is_admin() {
            return Err(role(&guest));
        }
        web.hub.configure(wanted.change(t)?).await
    };
    match outcome.await {
        Ok(_) => respond::go(&headers, "/ui/models/hub"),
        Err(problem) => {
            let (title, body) = refusal::words(&problem, t);
            let status = if problem.kind == ProblemKind::Invalid { StatusCode::UNPROCESSABLE_ENTITY } else { refusal::status(&problem) };
            refusal::notice(status, &title, &body)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::EN;

    fn wanted(token: &str, drop: bool) -> Wanted {
        Wanted {
            endpoint: String::new(),
            token: Some(Secret::new(token.to_owned())),
            limit: "20".to_owned(),
            drop_token: drop.then(|| "on".to_owned()),
        }
    }

    #[test]
    fn an_empty_token_field_keeps_the_token_and_only_its_box_drops_it() {
        assert_eq!(wanted(" ", false).change(&EN).unwrap().token, None);
        assert!(wanted("", true).change(&EN).unwrap().token.is_some_and(|token| token.expose().is_empty()));
        let change = wanted("hf_x", true).change(&EN).unwrap();
        assert!(change.token.is_some_and(|token| token.expose() == "hf_x"));
        assert_eq!(change.limit, Some(Some(Bytes(20 << 20))));
    }
}
