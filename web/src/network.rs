//! `/ui/network`: wired ports, the change under trial, the name of the box and its clock.

pub(crate) mod confirm;
pub(crate) mod host;
pub(crate) mod port;

use askama::Template;
use axum::{extract::State, http::HeaderMap, response::Response};
use warden_domain::{
    Problem, clock,
    network::{Interface, Ipv4Config, Ipv6Config, LinkState},
};

use crate::{
    Web,
    assets::url,
    catalogue::Text,
    field::Field,
    refusal::refuse,
    respond,
    shell::Shell,
    visit::Guest,
    wording::{Moment, StateView, UNKNOWN},
};

/// One port in the table.
pub(crate) struct Row {
    name: String,
    state: StateView,
    how: String,
    addresses: Vec<String>,
    gateways: String,
    dns: String,
    hardware: String,
    may_change: bool,
}

impl Row {
    fn of(port: &Interface, may_change: bool, t: &Text) -> Self {
        let joined = |list: &[String]| if list.is_empty() { UNKNOWN.to_owned() } else { list.join(", ") };
        let speed = port.speed_mbit.map(|mbit| if mbit >= 1000 { format!("{} Gbit/s", f64::from(mbit) / 1000.0) } else { format!("{mbit} Mbit/s") });
        Self {
            name: port.name.clone(),
            state: state(port.state, t),
            how: port.config.as_ref().map_or_else(
                || UNKNOWN.to_owned(),
                |config| {
                    let four = match config.ipv4 {
                        Ipv4Config::Dhcp => t.network_dhcp,
                        Ipv4Config::Static { .. } => t.network_static,
                        Ipv4Config::Off => t.network_off,
                    };
                    let six = match config.ipv6 {
                        Ipv6Config::Auto => t.network_auto,
                        Ipv6Config::Static { .. } => t.network_static,
                        Ipv6Config::Off => t.network_off,
                    };
                    format!("IPv4 {four} · IPv6 {six}")
                },
            ),
            addresses: port.addresses.iter().map(ToString::to_string).collect(),
            gateways: joined(&port.gateways.iter().map(ToString::to_string).collect::<Vec<_>>()),
            dns: joined(&port.dns.iter().map(ToString::to_string).collect::<Vec<_>>()),
            hardware: [port.mac.clone(), speed].into_iter().flatten().collect::<Vec<_>>().join(" · "),
            may_change: may_change && port.state != LinkState::Unmanaged,
        }
    }
}

fn state(state: LinkState, t: &Text) -> StateView {
    let (word, label) = match state {
        LinkState::Connected => ("running", t.network_connected),
        LinkState::Connecting => ("loading", t.network_connecting),
        LinkState::NoCable => ("stopped", t.network_no_cable),
        LinkState::Disconnected => ("stopped", t.network_disconnected),
        LinkState::Failed => ("failed", t.network_failed),
        LinkState::Unmanaged => ("waiting", t.network_unmanaged),
        LinkState::Unknown => ("waiting", t.network_unknown),
    };
    StateView { word, label }
}

/// The change under trial.
struct Trial {
    title: String,
    body: String,
    urls: Vec<String>,
}

/// How the last one ended.
struct Ended {
    word: &'static str,
    title: String,
    sentence: String,
    at: Moment,
}

#[derive(Template)]
#[template(path = "network/page.html", blocks = ["live"])]
pub(crate) struct Page {
    page: Shell,
    unavailable: Option<String>,
    rows: Vec<Row>,
    trial: Option<Trial>,
    ended: Option<Ended>,
    may: bool,
    name: Field,
    name_unavailable: Option<String>,
    clock: host::ClockView,
}

impl Page {
    pub(crate) async fn look(web: &Web, guest: &Guest) -> Result<Self, Problem> {
        let t = guest.look.lang.text();
        let (network, name, time) = (web.network.document().await, web.names.document().await, web.time.document().await);
        let may = guest.is_admin();
        let present = name.wanted.or(name.present).unwrap_or_default();
        Ok(Self {
            unavailable: network.unavailable,
            rows: network.interfaces.iter().map(|port| Row::of(port, may, t)).collect(),
            trial: network.pending.map(|pending| Trial {
                title: t.network_trial(&pending.interface),
                body: t.network_trial_body(pending.seconds_left),
                urls: pending.console_urls,
            }),
            ended: network.last.map(|last| Ended {
                word: if last.kept { "running" } else { "waiting" },
                title: if last.kept { t.network_kept(&last.interface) } else { t.network_undone(&last.interface) },
                sentence: last.sentence,
                at: Moment::new(last.at, clock::now(), t),
            }),
            may,
            name: Field::text("hostname", t.network_name).value(present).hint(t.network_name_hint),
            name_unavailable: name.unavailable,
            clock: host::ClockView::of(time, t),
            page: Shell::new(web, guest, t.network_title, "/ui/live/network").await?,
        })
    }

    pub(crate) const fn shell(&self) -> &Shell {
        &self.page
    }
}

/// `GET /ui/network`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    match Page::look(&web, &guest).await {
        Ok(page) => respond::page(&page),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}
