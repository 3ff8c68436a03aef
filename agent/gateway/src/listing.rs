//! `GET /v1/models` and `GET /v1/models/{id}`: the models that answer now.

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use warden_domain::{
    Problem,
    replica::{ReplicaTable, ServedModel},
};

use crate::{
    dialects::listing::{self, Listed},
    refusal,
};

/// A page of them, by name.
pub(crate) fn page(table: &ReplicaTable, query: Option<&str>) -> Result<Response, Problem> {
    let all: Vec<Listed<'_>> = table.models.values().map(listed).collect();
    listing::page(&all, query).map(json)
}

/// One of them; `name` as it stands in the path.
pub(crate) fn one(table: &ReplicaTable, name: &str) -> Result<Response, Problem> {
    let name = listing::unescaped(name);
    let model = table.models.get(&name).ok_or_else(|| refusal::not_loaded(&name, table))?;
    Ok(json(listing::one(&listed(model))))
}

fn listed(model: &ServedModel) -> Listed<'_> {
    Listed { name: &model.served_name, created: model.created, window: model.context }
}

/// An answer that is one JSON document.
pub(crate) fn json(body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
