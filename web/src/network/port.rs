//! One port: its form, the plan before anything happens, and the change itself.

use std::{net::IpAddr, str::FromStr};

use askama::Template;
use axum::{
    Form,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::Deserialize;
use warden_access::http::Visitor;
use warden_domain::{
    Problem, ProblemKind,
    network::{Begun, CONFIRM_DEFAULT, ChangeRequest, InterfaceConfig, Ipv4Config, Ipv6Config, NetworkPlan},
};

use crate::{
    Web,
    assets::url,
    catalogue::Text,
    field::{Choice, Field},
    refusal::{self, refuse},
    respond,
    shell::Shell,
    visit::Guest,
};

/// What the form sends.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    ipv4: String,
    address4: String,
    prefix4: String,
    gateway4: String,
    ipv6: String,
    address6: String,
    prefix6: String,
    gateway6: String,
    dns: String,
    search: String,
}

impl Wanted {
    fn of(config: &InterfaceConfig) -> Self {
        let mut wanted = Self { ipv4: "dhcp".into(), ipv6: "auto".into(), prefix4: "24".into(), prefix6: "64".into(), ..Self::default() };
        match &config.ipv4 {
            Ipv4Config::Dhcp => {}
            Ipv4Config::Off => wanted.ipv4 = "off".into(),
            Ipv4Config::Static { address, prefix, gateway } => {
                wanted.ipv4 = "static".into();
                wanted.address4 = address.to_string();
                wanted.prefix4 = prefix.to_string();
                wanted.gateway4 = gateway.map(|g| g.to_string()).unwrap_or_default();
            }
        }
        match &config.ipv6 {
            Ipv6Config::Auto => {}
            Ipv6Config::Off => wanted.ipv6 = "off".into(),
            Ipv6Config::Static { address, prefix, gateway } => {
                wanted.ipv6 = "static".into();
                wanted.address6 = address.to_string();
                wanted.prefix6 = prefix.to_string();
                wanted.gateway6 = gateway.map(|g| g.to_string()).unwrap_or_default();
            }
        }
        wanted.dns = config.dns.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ");
        wanted.search = config.search.join(", ");
        wanted
    }

    fn into_config(self, t: &Text) -> Result<InterfaceConfig, Problem> {
        let ipv4 = match self.ipv4.as_str() {
            "static" => Ipv4Config::Static {
                address: one(&self.address4, t.network_address, t)?,
                prefix: one(&self.prefix4, t.network_prefix, t)?,
                gateway: maybe(&self.gateway4, t.network_gateway, t)?,
            },
            "off" => Ipv4Config::Off,
            _ => Ipv4Config::Dhcp,
        };
        let ipv6 = match self.ipv6.as_str() {
            "static" => Ipv6Config::Static {
                address: one(&self.address6, t.network_address, t)?,
                prefix: one(&self.prefix6, t.network_prefix, t)?,
                gateway: maybe(&self.gateway6, t.network_gateway, t)?,
            },
            "off" => Ipv6Config::Off,
            _ => Ipv6Config::Auto,
        };
        let dns = words(&self.dns).map(|word| one(word, t.network_dns, t)).collect::<Result<_, _>>()?;
        Ok(InterfaceConfig { ipv4, ipv6, dns, search: words(&self.search).map(str::to_owned).collect() })
    }

    /// As hidden fields of the question.
    fn fields(&self) -> Vec<(&'static str, String)> {
        [
            ("ipv4", &self.ipv4),
            ("address4", &self.address4),
            ("prefix4", &self.prefix4),
            ("gateway4", &self.gateway4),
            ("ipv6", &self.ipv6),
            ("address6", &self.address6),
            ("prefix6", &self.prefix6),
            ("gateway6", &self.gateway6),
            ("dns", &self.dns),
            ("search", &self.search),
        ]
        .map(|(name, value)| (name, value.clone()))
        .into()
    }
}

pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || c == ',' || c == ';').filter(|word| !word.is_empty())
}

fn one<V: FromStr>(text: &str, label: &str, t: &Text) -> Result<V, Problem> {
    text.trim().parse().map_err(|_| Problem::new(ProblemKind::Invalid, t.network_not(label, text.trim())).hint(t.network_not_body))
}

fn maybe<V: FromStr>(text: &str, label: &str, t: &Text) -> Result<Option<V>, Problem> {
    if text.trim().is_empty() { Ok(None) } else { one(text, label, t).map(Some) }
}

#[derive(Template)]
#[template(path = "network/port.html")]
struct Port {
    page: Shell,
    name: String,
    hardware: String,
    ipv4: Choice,
    four: Vec<Field>,
    ipv6: Choice,
    six: Vec<Field>,
    names: Vec<Field>,
}

/// `GET /ui/network/{port}`: the form.
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(name): Path<String>) -> Response {
    match look(&web, &guest, &name).await {
        Ok(port) => respond::page(&port),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

async fn look(web: &Web, guest: &Guest, name: &str) -> Result<Port, Problem> {
    let t = guest.look.lang.text();
    let document = web.network.document().await;
    let found = document.interfaces.iter().find(|port| port.name == name);
    let port = found.ok_or_else(|| match document.unavailable {
        Some(why) => Problem::new(ProblemKind::SystemService, why),
        None => Problem::new(ProblemKind::NotFound, t.network_no_port(name)),
    })?;
    let now = Wanted::of(port.config.as_ref().unwrap_or(&InterfaceConfig::default()));
    let methods = |automatic| [automatic, ("static", t.network_static), ("off", t.network_off)].into();
    Ok(Port {
        page: Shell::new(web, guest, name, "/ui/live/strip").await?,
        name: name.to_owned(),
        hardware: port.mac.clone().unwrap_or_default(),
        ipv4: Choice { id: "ipv4", label: t.network_method, chosen: now.ipv4, options: methods(("dhcp", t.network_dhcp)) },
        four: vec![
            Field::text("address4", t.network_address).value(now.address4).placeholder("192.168.1.20").optional(""),
            Field::text("prefix4", t.network_prefix).value(now.prefix4).hint(t.network_prefix_hint).optional(""),
            Field::text("gateway4", t.network_gateway).value(now.gateway4).placeholder("192.168.1.1").optional(t.new_optional),
        ],
        ipv6: Choice { id: "ipv6", label: t.network_method, chosen: now.ipv6, options: methods(("auto", t.network_auto)) },
        six: vec![
            Field::text("address6", t.network_address).value(now.address6).placeholder("fd00::20").optional(""),
            Field::text("prefix6", t.network_prefix).value(now.prefix6).optional(""),
            Field::text("gateway6", t.network_gateway).value(now.gateway6).optional(t.new_optional),
        ],
        names: vec![
            Field::text("dns", t.network_dns).value(now.dns).hint(t.network_dns_hint).optional(t.new_optional),
            Field::text("search", t.network_search).value(now.search).hint(t.network_search_hint).optional(t.new_optional),
        ],
    })
}

#[derive(Template)]
#[template(path = "network/plan.html", blocks = ["ask"])]
struct Plan {
    page: Shell,
    name: String,
    question: String,
    plan: NetworkPlan,
    fields: Vec<(&'static str, String)>,
    after: String,
}

/// `POST /ui/network/{port}/plan`: what the settings would do, and one button.
pub(crate) async fn plan(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(name): Path<String>, Form(wanted): Form<Wanted>) -> Response {
    match planned(&web, &guest, name, wanted).await {
        Ok(plan) if respond::is_htmx(&headers) => respond::html(StatusCode::OK, &plan.as_ask()),
        Ok(plan) => respond::page(&plan),
        Err(problem) => refused(&guest, &problem),
    }
}

async fn planned(web: &Web, guest: &Guest, name: String, wanted: Wanted) -> Result<Plan, Problem> {
    let t = guest.look.lang.text();
    if !guest.is_admin() {
        return Err(refusal::role(guest));
    }
    let fields = wanted.fields();
    let plan = web.network.plan(&name, &wanted.into_config(t)?).await?;
    if plan.changes.is_empty() {
        return Err(Problem::new(ProblemKind::Conflict, t.network_nothing).hint(t.network_nothing_body));
    }
    let question = t.network_ask(&name);
    Ok(Plan { page: Shell::new(web, guest, &question, "").await?, name, question, plan, fields, after: t.network_after(CONFIRM_DEFAULT.as_secs()) })
}

#[derive(Template)]
#[template(path = "network/begun.html")]
struct Started {
    t: &'static Text,
    title: String,
    body: String,
    urls: Vec<String>,
}

/// `POST /ui/network/{port}`: begins the change and shows where to confirm it.
pub(crate) async fn apply(State(web): State<Web>, guest: Guest, visitor: Visitor, Path(name): Path<String>, Form(wanted): Form<Wanted>) -> Response {
    let t = guest.look.lang.text();
    match begin(&web, &guest, &visitor, &name, wanted).await {
        Ok(begun) => {
            let urls = begun.confirm_urls();
            let body = if urls.is_empty() { t.network_begun_dhcp } else { t.network_begun_body };
            let started = Started { t, title: t.network_begun(begun.window.as_secs()), body: body.to_owned(), urls };
            respond::html(StatusCode::ACCEPTED, &started)
        }
        Err(problem) => refused(&guest, &problem),
    }
}

async fn begin(web: &Web, guest: &Guest, visitor: &Visitor, name: &str, wanted: Wanted) -> Result<Begun, Problem> {
    if !guest.is_admin() {
        return Err(refusal::role(guest));
    }
    let request = ChangeRequest {
        interface: name.to_owned(),
        wanted: wanted.into_config(guest.look.lang.text())?,
        window: CONFIRM_DEFAULT,
        arrived_on: visitor.local,
        account: guest.principal.account.clone(),
    };
    web.network.change(request).await
}

/// `POST /ui/network/undo`
pub(crate) async fn undo(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let undone = if guest.is_admin() { web.network.undo().await } else { Err(refusal::role(&guest)) };
    match undone {
        Ok(_) if respond::is_htmx(&headers) => respond::done(),
        Ok(_) => respond::see_other("/ui/network"),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

pub(crate) fn refused(guest: &Guest, problem: &Problem) -> Response {
    let (title, body) = refusal::words(problem, guest.look.lang.text());
    refusal::notice(refusal::status(problem), &title, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::EN;

    #[test]
    fn a_form_that_nobody_touched_asks_for_what_is_there() {
        let fixed = InterfaceConfig {
            ipv4: Ipv4Config::Static { address: "10.0.0.5".parse().unwrap(), prefix: 24, gateway: None },
            dns: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            search: vec!["example.com".into()],
            ..InterfaceConfig::default()
        };
        for config in [InterfaceConfig::default(), fixed] {
            assert_eq!(Wanted::of(&config).into_config(&EN).unwrap(), config);
        }
    }

    #[test]
    fn a_mistyped_address_is_quoted_with_the_name_of_its_field() {
        let wanted = Wanted { ipv4: "static".into(), address4: "10.0.0".into(), prefix4: "24".into(), ..Wanted::default() };
        let problem = wanted.into_config(&EN).unwrap_err();
        assert!(problem.message.contains("10.0.0") && problem.message.contains(EN.network_address), "{problem:?}");
    }
}
