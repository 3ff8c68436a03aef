//! The front door: `/ui/tls` with certificate, names and the plain port, and the page with the fingerprint that port 80 shows.

use askama::Template;
use axum::{
    Form,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use warden_domain::{
    Problem, ProblemKind, clock,
    front::{Certificates, FrontConfig, PlainPort},
};

use crate::{
    Web,
    assets::url,
    catalogue::Text,
    field::Field,
    look::Look,
    refusal::{self, refuse, words},
    respond,
    shell::Shell,
    visit::Guest,
    wording::{Moment, StateView},
};

/// The certificate as the page shows it.
struct Shown {
    authority: String,
    leaf: String,
    names: String,
    addresses: String,
    issued: Moment,
    until: String,
}

/// `/ui/tls`.
#[derive(Template)]
#[template(path = "front/page.html", blocks = ["live", "form"])]
pub(crate) struct Page {
    page: Shell,
    certificate: Option<Shown>,
    names: String,
    /// State, word and reason of the plain port; `None` where it is the only one.
    plain: Option<(StateView, String)>,
    field: Field,
    plain_http: bool,
    may_change: bool,
    saved: bool,
    refusal: Option<(String, String)>,
}

impl Page {
    pub(crate) async fn look(web: &Web, guest: &Guest) -> Result<Self, Problem> {
        let t = guest.look.lang.text();
        let (config, state) = (web.front.config(), web.front.state());
        let now = clock::now();
        let plain = match state.plain {
            PlainPort::Only => None,
            PlainPort::Closed => Some((StateView { word: "stopped", label: t.front_plain_closed }, String::new())),
            PlainPort::Open => Some((StateView { word: "running", label: t.front_plain_open }, t.front_plain_warning.to_owned())),
            PlainPort::Failed(reason) => Some((StateView { word: "failed", label: t.front_plain_failed }, reason)),
        };
        Ok(Self {
            certificate: state.certificates.map(|c| Shown {
                names: c.names.join(", "),
                addresses: c.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                issued: Moment::new(c.issued_at, now, t),
                until: c.valid_until.strftime("%Y-%m-%d").to_string(),
                authority: c.authority_fingerprint,
                leaf: c.leaf_fingerprint,
            }),
            names: state.names.join(", "),
            plain,
            field: Field::text("names", t.front_own_names).value(config.names.join(" ")).hint(t.front_own_names_hint).optional(t.front_optional),
            plain_http: config.plain_http,
            may_change: guest.is_admin(),
            saved: false,
            refusal: None,
            page: Shell::new(web, guest, t.front_title, "/ui/live/tls").await?,
        })
    }

    pub(crate) const fn shell(&self) -> &Shell {
        &self.page
    }
}

/// `GET /ui/tls`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    match Page::look(&web, &guest).await {
        Ok(page) => respond::page(&page),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `GET /ui/tls/ca.crt`: the authority for a trust store.
pub(crate) async fn authority(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let Some(certificates) = web.front.state().certificates else {
        let problem = Problem::new(ProblemKind::NotFound, "This agent has no certificate authority.").hint("Only the appliance has one.");
        return refuse(&web, guest.look, &headers, &problem);
    };
    let as_file = [
        (header::CONTENT_TYPE, "application/x-x509-ca-cert"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"lm-warden-ca.crt\""),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (as_file, Body::from(certificates.authority_pem)).into_response()
}

/// What the form sends.
#[derive(Deserialize)]
pub(crate) struct Given {
    #[serde(default)]
    names: String,
    plain_http: Option<String>,
}

/// `POST /ui/tls`: keeps names and the plain port's state.
pub(crate) async fn submit(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(given): Form<Given>) -> Response {
    let names = given.names.split([' ', ',', ';', '\n', '\r', '\t']).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let wanted = FrontConfig { names, plain_http: given.plain_http.is_some() };
    let done = if guest.is_admin() { web.front.configure(&guest.principal.account, wanted).await } else { Err(refusal::role(&guest)) };
    if done.is_ok() && !respond::is_htmx(&headers) {
        return respond::see_other("/ui/tls");
    }
    let mut page = match Page::look(&web, &guest).await {
        Ok(page) => page,
        Err(problem) => return refuse(&web, guest.look, &headers, &problem),
    };
    let mut status = StatusCode::OK;
    match done {
        Ok(()) => page.saved = true,
        Err(problem) => {
            status = refusal::status(&problem);
            page.plain_http = given.plain_http.is_some();
            page.field = page.field.value(given.names);
            if problem.kind == ProblemKind::Invalid {
                page.field = page.field.error(Some(problem.full_text()));
            } else {
                page.refusal = Some(words(&problem, page.page.t));
            }
        }
    }
    if respond::is_htmx(&headers) { respond::html(status, &page.as_form()) } else { respond::html(status, &page) }
}

#[derive(Template)]
#[template(path = "front/fingerprint.html")]
struct Fingerprint<'a> {
    t: &'static Text,
    authority: &'a str,
    leaf: &'a str,
    names: &'a [String],
}

/// The page of port 80 with which a person compares what the browser shows against what the box's own screen shows. It has neither
/// style nor script: nothing else may come from that port.
#[must_use]
pub fn fingerprint_page(headers: &HeaderMap, certificates: &Certificates) -> Response {
    let page = Fingerprint {
        t: Look::of(headers).lang.text(),
        authority: &certificates.authority_fingerprint,
        leaf: &certificates.leaf_fingerprint,
        names: &certificates.names,
    };
    let mut response = respond::html(StatusCode::OK, &page);
    response.headers_mut().extend([
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; base-uri 'none'")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ]);
    response
}
