//! `/ui/system`: version, restart, switch off, factory reset. Each asks first and says what will happen.

use askama::Template;
use axum::{
    Form,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::Deserialize;
use warden_domain::{Problem, ProblemKind, machine::Power};

use crate::{
    Web,
    ask::{self, Question},
    assets::url,
    catalogue::Text,
    field::Field,
    refusal::{self, refuse},
    respond,
    shell::Shell,
    visit::Guest,
};

/// The word that confirms a factory reset; the same as in the API and on the local screen.
const WORD: &str = "reset";

#[derive(Template)]
#[template(path = "system/page.html")]
struct System {
    page: Shell,
    appliance: bool,
    may: bool,
    facts: Vec<(&'static str, String)>,
}

#[derive(Template)]
#[template(path = "system/factory.html", blocks = ["ask"])]
struct Factory {
    page: Shell,
    plan: Vec<&'static str>,
    keep: bool,
    field: Field,
    refusal: Option<(String, String)>,
}

#[derive(Template)]
#[template(path = "system/going.html")]
struct Going {
    t: &'static Text,
    word: &'static str,
    title: &'static str,
    body: &'static str,
}

/// `GET /ui/system`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let t = guest.look.lang.text();
    match Shell::new(&web, &guest, t.system_title, "/ui/live/strip").await {
        Ok(page) => respond::page(&System {
            appliance: web.machine.offered(),
            may: guest.is_admin(),
            facts: vec![(t.system_version, web.version.to_owned()), (t.system_name, web.names.present())],
            page,
        }),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `GET /ui/system/reboot`: the question.
pub(crate) async fn ask_reboot(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    ask::show(&web, &guest, &headers, question(&web, &guest, Power::Reboot).await, None).await
}

/// `GET /ui/system/power-off`: the question.
pub(crate) async fn ask_off(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    ask::show(&web, &guest, &headers, question(&web, &guest, Power::Off).await, None).await
}

/// `POST /ui/system/reboot`
pub(crate) async fn reboot(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    power(&web, &headers, &guest, Power::Reboot).await
}

/// `POST /ui/system/power-off`
pub(crate) async fn off(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    power(&web, &headers, &guest, Power::Off).await
}

async fn power(web: &Web, headers: &HeaderMap, guest: &Guest, power: Power) -> Response {
    let t = guest.look.lang.text();
    match try_power(web, guest, power).await {
        Ok(()) => {
            let (word, title, body) = match power {
                Power::Reboot => ("reboot", t.system_going_reboot, t.system_going_reboot_body),
                Power::Off => ("power-off", t.system_going_off, t.system_going_off_body),
            };
            respond::html(StatusCode::ACCEPTED, &Going { t, word, title, body })
        }
        Err(problem) => ask::show(web, guest, headers, question(web, guest, power).await, Some(&problem)).await,
    }
}

async fn try_power(web: &Web, guest: &Guest, power: Power) -> Result<(), Problem> {
    if !guest.is_admin() {
        return Err(refusal::role(guest));
    }
    // The record is on disk before the machine goes down.
    web.audit.note(&guest.principal, power.action(), None, "ok").await?;
    let done = web.machine.power(power).await;
    if done.is_err() {
        web.audit.note(&guest.principal, power.action(), None, "refused").await?;
    }
    done
}

async fn question(web: &Web, guest: &Guest, power: Power) -> Question {
    let t = guest.look.lang.text();
    let models = web.registry.list().await.unwrap_or_default();
    let running: u64 = models.iter().map(|model| web.flights.of_model(&model.id) as u64).sum();
    let requests = if running == 0 { t.system_requests_none.to_owned() } else { t.system_requests(running) };
    let (url, question, last, verb) = match power {
        Power::Reboot => ("/ui/system/reboot", t.system_reboot_ask, t.system_reboot_back, t.system_reboot),
        Power::Off => ("/ui/system/power-off", t.system_off_ask, t.system_off_back, t.system_off),
    };
    Question { url: url.to_owned(), question: question.to_owned(), plan: vec![requests, last.to_owned()], verb, back: "/ui/system".to_owned() }
}

/// `GET /ui/system/factory-reset`: the question, with what stays and the word to type.
pub(crate) async fn ask_factory(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    factory_form(&web, &guest, &headers, true, None).await
}

/// What the form sends.
#[derive(Deserialize)]
pub(crate) struct Wish {
    #[serde(default)]
    models: String,
    #[serde(default)]
    confirm: String,
}

/// `POST /ui/system/factory-reset`
pub(crate) async fn factory(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(wish): Form<Wish>) -> Response {
    let t = guest.look.lang.text();
    // Whatever is not plainly the wish to remove them keeps the models.
    let keep = wish.models != "remove";
    match try_factory(&web, &guest, keep, &wish.confirm).await {
        Ok(()) => {
            let going = Going { t, word: "factory-reset", title: t.system_going_factory, body: t.system_going_factory_body };
            respond::html(StatusCode::ACCEPTED, &going)
        }
        Err(problem) => factory_form(&web, &guest, &headers, keep, Some(&problem)).await,
    }
}

async fn try_factory(web: &Web, guest: &Guest, keep: bool, typed: &str) -> Result<(), Problem> {
    if !guest.is_admin() {
        return Err(refusal::role(guest));
    }
    if !typed.trim().eq_ignore_ascii_case(WORD) {
        let t = guest.look.lang.text();
        return Err(Problem::new(ProblemKind::Invalid, t.system_word_wrong(WORD)));
    }
    let asked = web.machine.request_factory_reset(keep).await;
    let outcome = if asked.is_ok() { "ok" } else { "refused" };
    web.audit.note(&guest.principal, "system.factory-reset", asked.as_ref().ok().cloned(), outcome).await?;
    asked?;
    web.machine.power(Power::Reboot).await
}

async fn factory_form(web: &Web, guest: &Guest, headers: &HeaderMap, keep: bool, refused: Option<&Problem>) -> Response {
    let t = guest.look.lang.text();
    let page = match Shell::new(web, guest, t.system_factory, "").await {
        Ok(page) => page,
        Err(problem) => return refuse(web, guest.look, headers, &problem),
    };
    let of_field = refused.filter(|problem| problem.kind == ProblemKind::Invalid);
    let factory = Factory {
        page,
        plan: vec![t.system_factory_removed, t.system_factory_kept, t.system_factory_after],
        keep,
        field: Field::text("confirm", t.system_word).hint(t.system_word_hint).error(of_field.map(Problem::full_text)),
        refusal: refused.filter(|_| of_field.is_none()).map(|problem| refusal::words(problem, t)),
    };
    let status = refused.map_or(StatusCode::OK, refusal::status);
    if respond::is_htmx(headers) { respond::html(status, &factory.as_ask()) } else { respond::html(status, &factory) }
}
