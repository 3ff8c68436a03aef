//! `GET /v1/models` and `GET /v1/models/{id}`: the models that answer now.

use axum::{Json, response::IntoResponse, response::Response};
use serde::Serialize;
use warden_domain::{
    Problem,
    replica::{ReplicaTable, ServedModel},
    units::Tokens,
};

use crate::refusal;

#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
    max_model_len: Option<Tokens>,
}

/// All of them, by name.
pub(crate) fn all(table: &ReplicaTable) -> Response {
    Json(List { object: "list", data: table.models.values().map(entry).collect() }).into_response()
}

/// One of them.
pub(crate) fn one(table: &ReplicaTable, name: &str) -> Result<Response, Problem> {
    let model = table.models.get(name).ok_or_else(|| refusal::not_loaded(name, table))?;
    Ok(Json(entry(model)).into_response())
}

fn entry(model: &ServedModel) -> Entry<'_> {
    Entry { id: &model.served_name, object: "model", created: model.created, owned_by: "lm-warden", max_model_len: model.context }
}
