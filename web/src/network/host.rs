//! The name of the box and its clock, on the network page.

use axum::{Form, extract::State, http::HeaderMap, response::Response};
use jiff::Timestamp;
use serde::Deserialize;
use warden_domain::{
    Problem, ProblemKind,
    time::{TimeConfig, TimeDocument},
};

use super::port::{refused, words};
use crate::{
    Web,
    catalogue::Text,
    field::{Choice, Field},
    refusal, respond,
    visit::Guest,
    wording::UNKNOWN,
};

/// The clock's panel.
pub(crate) struct ClockView {
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) source: Choice,
    pub(crate) servers: Field,
    pub(crate) by_hand: bool,
    pub(crate) moment: Field,
    pub(crate) unavailable: Option<String>,
}

impl ClockView {
    pub(crate) fn of(document: TimeDocument, t: &'static Text) -> Self {
        let state = document.state;
        let unknown = || UNKNOWN.to_owned();
        let yes_no = |fact: Option<bool>| fact.map_or_else(unknown, |yes| if yes { t.network_yes } else { t.network_no }.to_owned());
        let (mode, servers) = match document.config {
            TimeConfig::Ntp { servers } => ("ntp", servers),
            TimeConfig::Manual => ("manual", Vec::new()),
        };
        let now = Timestamp::from_second(state.now.as_second()).unwrap_or(state.now).to_string();
        Self {
            facts: vec![
                (t.network_clock_now, now.clone()),
                (t.network_clock_synced, yes_no(state.synchronized)),
                (t.network_clock_server, state.server.unwrap_or_else(unknown)),
                (t.network_clock_hardware, state.hardware_clock.map_or_else(unknown, |at| at.to_string())),
            ],
            source: Choice {
                id: "mode",
                label: t.network_clock_source,
                chosen: mode.to_owned(),
                options: vec![("ntp", t.network_clock_ntp), ("manual", t.network_clock_manual)],
            },
            servers: Field::text("servers", t.network_clock_servers)
                .value(servers.join(", "))
                .hint(t.network_clock_servers_hint)
                .optional(t.new_optional),
            by_hand: mode == "manual",
            moment: Field::text("now", t.network_clock_set).value(now).hint(t.network_clock_set_hint),
            unavailable: document.unavailable,
        }
    }
}

/// What the name's form sends.
#[derive(Deserialize)]
pub(crate) struct Named {
    #[serde(default)]
    hostname: String,
}

/// `POST /ui/network/name`
pub(crate) async fn name(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(named): Form<Named>) -> Response {
    let wanted = Some(named.hostname.trim().to_owned()).filter(|name| !name.is_empty());
    let set = if guest.is_admin() { web.names.set(wanted, &guest.principal.account).await.map(drop) } else { Err(refusal::role(&guest)) };
    answer(&headers, &guest, set)
}

/// What the clock's forms send.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
pub(crate) struct Source {
    mode: String,
    servers: String,
}

/// `POST /ui/network/time`
pub(crate) async fn source(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(source): Form<Source>) -> Response {
    let config = match source.mode.as_str() {
        "manual" => TimeConfig::Manual,
        _ => TimeConfig::Ntp { servers: words(&source.servers).map(str::to_owned).collect() },
    };
    let set = if guest.is_admin() { web.time.configure(config, &guest.principal.account).await.map(drop) } else { Err(refusal::role(&guest)) };
    answer(&headers, &guest, set)
}

/// A moment to set the clock to.
#[derive(Deserialize)]
pub(crate) struct ByHand {
    #[serde(default)]
    now: String,
}

/// `POST /ui/network/clock`
pub(crate) async fn clock(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(by_hand): Form<ByHand>) -> Response {
    let t = guest.look.lang.text();
    let set = async {
        if !guest.is_admin() {
            return Err(refusal::role(&guest));
        }
        let moment: Timestamp =
            by_hand.now.trim().parse().map_err(|_| {
                Problem::new(ProblemKind::Invalid, t.network_not(t.network_clock_set, by_hand.now.trim())).hint(t.network_clock_set_hint)
            })?;
        web.time.set_clock(moment, &guest.principal.account).await.map(drop)
    };
    let outcome = set.await;
    answer(&headers, &guest, outcome)
}

fn answer(headers: &HeaderMap, guest: &Guest, outcome: Result<(), Problem>) -> Response {
    match outcome {
        Ok(()) => respond::go(headers, "/ui/network"),
        Err(problem) => refused(guest, &problem),
    }
}
