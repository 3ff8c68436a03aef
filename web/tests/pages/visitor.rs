//! A browser for tests: sends requests through the gate and the pages, keeps nothing but its cookie and looks.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, BodyDataStream},
    http::{HeaderMap, Request},
};
use futures_util::StreamExt;
use http_body_util::BodyExt;
use tower::ServiceExt;
use warden_access::http::{HostRules, protect};
use warden_web::{Profile, WebParts, router};

use crate::ports::{COOKIE, CSRF, World};

/// What came back.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    /// A header's text; empty when it is not there.
    pub fn header(&self, name: &str) -> String {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
    }
}

/// A live line that is open.
pub struct Line(BodyDataStream);

impl Line {
    /// The data of the next event; a test that waits longer than 5 s has failed.
    pub async fn next_event(&mut self) -> String {
        let mut text = String::new();
        while !text.ends_with("\n\n") {
            let piece = tokio::time::timeout(Duration::from_secs(5), self.0.next()).await.expect("an event within 5 s");
            text.push_str(std::str::from_utf8(&piece.unwrap().unwrap()).unwrap());
        }
        text
    }
}

/// One browser in front of one box.
pub struct Browser {
    world: World,
    cookie: String,
    looks: String,
    htmx: bool,
    dev: bool,
}

impl Browser {
    pub fn anonymous(world: &World) -> Self {
        Self { world: world.clone(), cookie: String::new(), looks: String::new(), htmx: false, dev: true }
    }

    pub fn signed_in(world: &World) -> Self {
        Self { cookie: format!("warden_session={COOKIE}"), ..Self::anonymous(world) }
    }

    /// Takes the session out of a `Set-Cookie`.
    pub fn with_cookie(world: &World, set_cookie: &str) -> Self {
        Self { cookie: set_cookie.split(';').next().unwrap().to_owned(), ..Self::anonymous(world) }
    }

    pub fn look(mut self, lang: &str, theme: &str) -> Self {
        self.looks = format!("warden_lang={lang}; warden_theme={theme}");
        self
    }

    pub fn htmx(mut self) -> Self {
        self.htmx = true;
        self
    }

    pub fn release(mut self) -> Self {
        self.dev = false;
        self
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request("GET", path, true).body(Body::empty()).unwrap()).await
    }

    pub async fn post(&self, path: &str, form: &str) -> Answer {
        self.send(
            self.request("POST", path, true).header("content-type", "application/x-www-form-urlencoded").body(Body::from(form.to_owned())).unwrap(),
        )
        .await
    }

    pub async fn post_without_proof(&self, path: &str) -> Answer {
        self.send(self.request("POST", path, false).body(Body::empty()).unwrap()).await
    }

    pub async fn open(&self, path: &str) -> Line {
        let response = self.pages().oneshot(self.request("GET", path, true).body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Line(response.into_body().into_data_stream())
    }

    fn request(&self, method: &str, path: &str, proof: bool) -> axum::http::request::Builder {
        let mut request =
            Request::builder().method(method).uri(path).header("host", "box:8080").header("cookie", format!("{}; {}", self.cookie, self.looks));
        if self.htmx {
            request = request.header("hx-request", "true");
        }
        if proof {
            request = request.header("x-csrf-token", CSRF);
        }
        request
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.pages().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer { status, headers, text: String::from_utf8_lossy(&bytes).into_owned() }
    }

    fn pages(&self) -> Router {
        let ports = Arc::new(self.world.clone());
        let parts = WebParts {
            accounts: ports.clone(),
            recovery: ports.clone(),
            audit: ports.clone(),
            machine: ports.clone(),
            keys: ports.clone(),
            registry: ports.clone(),
            serving: ports.clone(),
            routing: ports.clone(),
            engines: ports.clone(),
            front: ports.clone(),
            storage: ports.clone(),
            disks: ports.clone(),
            imports: ports.clone(),
            hub: ports.clone(),
            downloads: ports.clone(),
            tasks: ports.tasks.clone(),
            updates: ports.clone(),
            flights: ports.clone(),
            gpus: ports.clone(),
            issues: ports.clone(),
            alerts: ports.clone(),
            changes: ports.changes.clone(),
            version: "0.0.0-test",
            network: ports.place.clone(),
            names: ports.place.clone(),
            time: ports.place.clone(),
            profile: Profile::Dev,
            dev: self.dev,
        };
        let hosts =
            HostRules { own_names: Arc::new(|name| name.eq_ignore_ascii_case("box")), any_loopback: true, own_addresses: Arc::new(|_| false) };
        protect(router(parts), ports, hosts)
    }
}
