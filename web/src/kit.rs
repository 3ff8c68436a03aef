//! `/ui/kit`: every component of the design system once. Dev builds only.

use askama::Template;
use axum::{extract::State, http::HeaderMap, response::Response};
use warden_domain::{clock, model::StateWord};

use crate::{
    Web,
    ask::{self, Question},
    assets::url,
    field::{Choice, Field},
    refusal::refuse,
    respond,
    shell::Shell,
    visit::Guest,
    wording::{Moment, Progress, StateView},
};

const ICONS: &[&str] = &[
    "home", "models", "chat", "keys", "network", "engine", "running", "waiting", "failed", "stopped", "alert", "info", "check", "plus", "copy",
    "play", "stop", "trash", "send", "arrow", "out", "sun", "moon", "auto", "file",
];

const SWATCHES: &[(&str, &str)] = &[
    ("ground", "c-ground"),
    ("surface", "c-surface"),
    ("sunken", "c-sunken"),
    ("line", "c-line"),
    ("text", "c-text"),
    ("text-soft", "c-soft"),
    ("accent", "c-accent"),
    ("running", "c-running"),
    ("waiting", "c-waiting"),
    ("failed", "c-failed"),
];

#[derive(Template)]
#[template(path = "kit.html")]
struct Kit {
    page: Shell,
    swatches: &'static [(&'static str, &'static str)],
    icons: &'static [&'static str],
    states: Vec<StateView>,
    fields: Vec<Field>,
    choice: Choice,
    bars: Vec<Progress>,
    facts: Vec<(&'static str, String)>,
    moment: Moment,
}

/// `GET /ui/kit`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let t = guest.look.lang.text();
    let page = match Shell::new(&web, &guest, "Kit", "").await {
        Ok(page) => page,
        Err(problem) => return refuse(&web, guest.look, &headers, &problem),
    };
    let states = [StateWord::Running, StateWord::Loading, StateWord::Waiting, StateWord::Failed, StateWord::Stopped];
    respond::page(&Kit {
        page,
        swatches: SWATCHES,
        icons: ICONS,
        states: states.into_iter().map(|state| StateView::of(state, t)).collect(),
        choice: Choice { id: "kit-choice", label: "One of a few", chosen: "b".to_owned(), options: vec![("a", "First"), ("b", "Second")] },
        fields: vec![
            Field::text("one", "Name").hint("What it is called.").placeholder("such as invoice-bot"),
            Field::text("two", "Slots").value("many").error(Some("\"many\" is not a whole number: write it in digits.".to_owned())),
            Field::password("three", "Password", "off"),
        ],
        bars: vec![
            Progress { label: "llama.cpp is being built".to_owned(), figures: "123 of 208".to_owned(), steps: Some((123, 208)) },
            Progress { label: "reading weights".to_owned(), figures: "1 m 12 s".to_owned(), steps: None },
        ],
        facts: vec![("Engine", "llama.cpp".to_owned()), ("Context window", "4\u{202f}096 tokens".to_owned())],
        moment: Moment::new(clock::now(), clock::now(), t),
    })
}

/// `GET /ui/kit/dialog`
pub(crate) async fn dialog(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let question = Question {
        url: "/ui/kit/dialog".to_owned(),
        question: "Unload tiny-chat?".to_owned(),
        plan: vec!["3 running requests get up to 30 seconds to finish, then they end.".to_owned(), "File and settings stay.".to_owned()],
        verb: "Unload",
        back: "/ui/kit".to_owned(),
    };
    ask::show(&web, &guest, &headers, question, None).await
}

/// `POST /ui/kit/dialog`
pub(crate) async fn close() -> Response {
    respond::done()
}
