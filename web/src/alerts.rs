//! `/ui/alerts`: where issues are told, a test of it, and what became of the last messages. For admins.

use askama::Template;
use axum::{
    Form,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use jiff::Timestamp;
use warden_domain::{
    Problem,
    alert::{Delivery, DeliveryState, NewAlertConfig},
    clock,
    issue::IssueCode,
};

use crate::{
    Web,
    assets::url,
    catalogue::Text,
    field::Field,
    issues::words,
    refusal::{self, refuse},
    respond,
    shell::Shell,
    visit::Guest,
    wording::{self, Moment},
};

/// How many messages are shown.
const SHOWN: usize = 20;

struct Row {
    what: String,
    event: &'static str,
    kind: &'static str,
    state: &'static str,
    at: Moment,
    tries: String,
    result: String,
}

impl Row {
    fn of(delivery: &Delivery, now: Timestamp, t: &Text) -> Self {
        let (kind, state, at) = match delivery.state {
            DeliveryState::Waiting { .. } => ("waiting", t.alerts_next, delivery.made_at),
            DeliveryState::Delivered { at } => ("running", t.alerts_delivered, at),
            DeliveryState::GivenUp { at } => ("failed", t.alerts_given_up, at),
        };
        let code = delivery.code.as_deref().and_then(IssueCode::from_stored);
        Self {
            what: code.map_or(t.alerts_test_word, |code| words::title(code, t)).to_owned(),
            event: match delivery.event.as_str() {
                "issue.opened" => t.alerts_opened,
                "issue.resolved" => t.alerts_resolved,
                _ => "",
            },
            kind,
            state,
            at: Moment::new(at, now, t),
            tries: wording::grouped(u64::from(delivery.tries)),
            result: delivery.last_result.clone().unwrap_or_default(),
        }
    }
}

struct Choice {
    code: &'static str,
    title: &'static str,
    chosen: bool,
}

#[derive(Template)]
#[template(path = "alerts/page.html", blocks = ["live"])]
pub(crate) struct Page {
    page: Shell,
    enabled: bool,
    has_secret: bool,
    all: bool,
    choices: Vec<Choice>,
    field: Field,
    rows: Vec<Row>,
    waiting: String,
}

#[derive(Template)]
#[template(path = "alerts/made.html")]
struct Made {
    t: &'static Text,
    secret: String,
}

impl Page {
    pub(crate) async fn look(web: &Web, guest: &Guest) -> Result<Self, Problem> {
        if !guest.is_admin() {
            return Err(refusal::role(guest));
        }
        let t = guest.look.lang.text();
        let now = clock::now();
        let config = web.alerts.config().await?;
        let state = web.alerts.state(SHOWN).await?;
        let chosen = |code: IssueCode| config.codes.as_ref().is_some_and(|codes| codes.contains(&code));
        let told = IssueCode::ALL.iter().filter(|code| **code != IssueCode::AlertNotDelivered);
        Ok(Self {
            enabled: config.enabled,
            has_secret: config.has_secret,
            all: config.codes.is_none(),
            choices: told.map(|code| Choice { code: code.as_str(), title: words::title(*code, t), chosen: chosen(*code) }).collect(),
            field: Field::text("url", t.alerts_url)
                .value(config.url)
                .hint(t.alerts_url_hint)
                .placeholder("http://ops.example:9000/warden")
                .optional(""),
            rows: state.latest.iter().map(|delivery| Row::of(delivery, now, t)).collect(),
            waiting: if state.waiting > 0 { t.alerts_waiting(state.waiting as u64) } else { String::new() },
            page: Shell::new(web, guest, t.alerts_title, "/ui/live/alerts").await?,
        })
    }

    pub(crate) const fn shell(&self) -> &Shell {
        &self.page
    }
}

/// `GET /ui/alerts`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    match Page::look(&web, &guest).await {
        Ok(page) => respond::page(&page),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/alerts`: saves; a secret that was made is shown, this once.
pub(crate) async fn save(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(fields): Form<Vec<(String, String)>>) -> Response {
    let t = guest.look.lang.text();
    let outcome = if guest.is_admin() { web.alerts.set(&guest.principal.account, wanted(&fields)).await } else { Err(refusal::role(&guest)) };
    match outcome {
        Ok(Some(secret)) => respond::html(StatusCode::CREATED, &Made { t, secret: secret.expose().clone() }),
        Ok(None) => respond::go(&headers, "/ui/alerts"),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/alerts/test`
pub(crate) async fn test(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let outcome = if guest.is_admin() { web.alerts.test(&guest.principal.account).await.map(drop) } else { Err(refusal::role(&guest)) };
    match outcome {
        Ok(()) if respond::is_htmx(&headers) => respond::done(),
        Ok(()) => respond::see_other("/ui/alerts"),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// What the form asks for. A box that is not ticked is not sent at all.
fn wanted(fields: &[(String, String)]) -> NewAlertConfig {
    let value = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.trim());
    let codes = fields.iter().filter(|(field, _)| field == "code").filter_map(|(_, word)| IssueCode::from_stored(word)).collect();
    NewAlertConfig {
        enabled: value("enabled").is_some(),
        url: value("url").unwrap_or_default().to_owned(),
        codes: (value("which") == Some("some")).then_some(codes),
        new_secret: value("new_secret").is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn ticked_codes_count_only_when_a_choice_was_asked_for() {
        let all = wanted(&fields(&[("enabled", "on"), ("url", " http://x/ "), ("which", "all"), ("code", "model_failed")]));
        assert_eq!((all.enabled, all.url.as_str(), all.codes), (true, "http://x/", None));
        let some = wanted(&fields(&[("which", "some"), ("code", "model_failed"), ("code", "unit_failed"), ("code", "gremlins")]));
        assert_eq!(some.codes, Some(vec![IssueCode::ModelFailed, IssueCode::UnitFailed]));
        assert!(!some.enabled && !some.new_secret);
    }
}
