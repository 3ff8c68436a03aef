//! A script that talks to the API through the gate.
#![allow(dead_code, reason = "each test file needs another part of it")]

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, BodyDataStream},
    http::{HeaderMap, Request},
};
use futures_util::StreamExt;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;
use warden_access::http::{HostRules, protect};
use warden_api::ApiParts;
use warden_domain::usage::{Finished, Ledger, LedgerEntry};
use warden_gateway::{FlightTable, Gateway, GatewayLimits, GatewayParts};

use crate::ports::{COOKIE, CSRF, World};

/// What came back.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
    pub json: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> String {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
    }

    pub fn code(&self) -> String {
        self.json["detail"]["error_code"].as_str().unwrap_or_default().to_owned()
    }

    pub fn message(&self) -> String {
        self.json["detail"]["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// An event stream that is open.
pub struct Line(BodyDataStream);

impl Line {
    pub async fn next_event(&mut self) -> String {
        let mut text = String::new();
        while !text.ends_with("\n\n") {
            let piece = tokio::time::timeout(Duration::from_secs(5), self.0.next()).await.expect("an event within 5 s");
            text.push_str(std::str::from_utf8(&piece.unwrap().unwrap()).unwrap());
        }
        text
    }
}

struct NoLedger;
struct NoEntry;

impl Ledger for NoLedger {
    fn open(&self) -> Option<Box<dyn LedgerEntry>> {
        Some(Box::new(NoEntry))
    }
}

impl LedgerEntry for NoEntry {
    fn finish(self: Box<Self>, _: Finished) {}
}

/// The API of a box, without the gate.
pub fn router(world: &World) -> Router {
    let ports = Arc::new(world.clone());
    let parts = GatewayParts {
        keys: ports.clone(),
        serving: ports.clone(),
        demand: Arc::new(warden_domain::replica::NoDemand),
        ledger: Arc::new(NoLedger),
        flights: FlightTable::new(),
    };
    warden_api::router(ApiParts {
        accounts: ports.clone(),
        recovery: ports.clone(),
        audit: ports.clone(),
        machine: ports.clone(),
        keys: ports.clone(),
        registry: ports.clone(),
        serving: ports.clone(),
        routing: ports.clone(),
        engines: ports.clone(),
        gpus: ports.clone(),
        issues: ports.clone(),
        alerts: ports.clone(),
        front: ports.clone(),
        storage: ports.clone(),
        disks: ports.clone(),
        imports: ports.clone(),
        hub: ports.clone(),
        downloads: ports.clone(),
        tasks: ports.tasks.clone(),
        updates: ports.clone(),
        changes: world.changes.clone(),
        gateway: Gateway::new(parts, GatewayLimits::default()),
        network: world.place.clone(),
        names: world.place.clone(),
        time: world.place.clone(),
        version: "0.0.0-test",
    })
}

pub struct Script {
    world: World,
    cookie: String,
}

impl Script {
    pub fn anonymous(world: &World) -> Self {
        Self { world: world.clone(), cookie: String::new() }
    }

    pub fn signed_in(world: &World) -> Self {
        Self { world: world.clone(), cookie: format!("warden_session={COOKIE}") }
    }

    pub fn with_cookie(world: &World, set_cookie: &str) -> Self {
        Self { world: world.clone(), cookie: set_cookie.split(';').next().unwrap().to_owned() }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(router(&self.world), "GET", path, Body::empty()).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(router(&self.world), "PUT", path, Body::from(body.to_string())).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(router(&self.world), "PATCH", path, Body::from(body.to_string())).await
    }

    pub async fn put_bytes(&self, path: &str, body: &[u8]) -> Answer {
        self.send(router(&self.world), "PUT", path, Body::from(body.to_vec())).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(router(&self.world), "DELETE", path, Body::empty()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(router(&self.world), "POST", path, Body::from(body.to_string())).await
    }

    pub async fn post_text(&self, path: &str, body: &str) -> Answer {
        self.send(router(&self.world), "POST", path, Body::from(body.to_owned())).await
    }

    pub async fn through(&self, router: Router, path: &str) -> Answer {
        self.send(router, "GET", path, Body::empty()).await
    }

    pub async fn open(&self, path: &str) -> Line {
        let response = self.protected(router(&self.world)).oneshot(self.request("GET", path, Body::empty())).await.unwrap();
        Line(response.into_body().into_data_stream())
    }

    async fn send(&self, router: Router, method: &str, path: &str, body: Body) -> Answer {
        let response = self.protected(router).oneshot(self.request(method, path, body)).await.unwrap();
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status, headers, text, json }
    }

    fn request(&self, method: &str, path: &str, body: Body) -> Request<Body> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost:8080")
            .header("content-type", "application/json")
            .header("cookie", &self.cookie)
            .header("x-csrf-token", CSRF)
            .body(body)
            .unwrap()
    }

    fn protected(&self, router: Router) -> Router {
        let hosts = HostRules { own_names: Arc::new(|_| false), any_loopback: true, own_addresses: Arc::new(|_| false) };
        protect(router, Arc::new(self.world.clone()), hosts)
    }
}
