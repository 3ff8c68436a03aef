//! `/ui/storage/sources/{key}`: the models on a stick, and importing one.

use askama::Template;
use axum::{
    Form,
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use serde::Deserialize;
use warden_domain::{
    Problem, ProblemKind,
    ids::{DiskId, TaskId},
    storage::{Import, Presence},
};

use crate::{
    Web,
    assets::url,
    field::Field,
    refusal::{self, refuse, role},
    respond,
    shell::Shell,
    visit::Guest,
};

struct ModelView {
    file: String,
    size: String,
    note: &'static str,
    chosen: bool,
}

struct TargetView {
    id: String,
    name: String,
    free: String,
    chosen: bool,
}

#[derive(Template)]
#[template(path = "storage/source.html")]
struct Source {
    page: Shell,
    key: String,
    models: Vec<ModelView>,
    targets: Vec<TargetView>,
    name: Field,
}

/// What the form sends.
#[derive(Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    file: String,
    #[serde(default)]
    to: String,
    #[serde(default)]
    served_name: String,
}

/// `GET /ui/storage/sources/{key}`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(key): Path<String>) -> Response {
    match look(&web, &guest, key).await {
        Ok(source) => respond::page(&source),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

async fn look(web: &Web, guest: &Guest, key: String) -> Result<Source, Problem> {
    if !guest.is_admin() {
        return Err(role(guest));
    }
    let t = guest.look.lang.text();
    let found = web.imports.look(&key).await?;
    let model = |(place, m): (usize, &warden_domain::storage::SourceModel)| ModelView {
        file: m.file.clone(),
        size: m.size.to_string(),
        note: if m.has_checksum { t.storage_has_checksum } else { "" },
        chosen: place == 0,
    };
    let mut targets = vec![TargetView { id: String::new(), name: t.storage_target_data.to_owned(), free: String::new(), chosen: true }];
    for volume in web.storage.overview().await?.volumes {
        if let Presence::Mounted { free, .. } = volume.presence {
            let name = format!("{} · {}", volume.recorded.model.as_deref().unwrap_or(&volume.recorded.label), volume.recorded.serial);
            let free = free.map(|f| t.storage_free(f)).unwrap_or_default();
            targets.push(TargetView { id: volume.recorded.id.to_string(), name, free, chosen: false });
        }
    }
    Ok(Source {
        models: found.iter().enumerate().map(model).collect(),
        targets,
        name: Field::text("served_name", t.new_name).hint(t.new_name_hint).optional(t.new_optional),
        page: Shell::new(web, guest, t.storage_source_title, "/ui/live/strip").await?,
        key,
    })
}

/// `POST /ui/storage/sources/{key}`: begins an import.
pub(crate) async fn submit(
    State(web): State<Web>,
    headers: HeaderMap,
    guest: Guest,
    Path(key): Path<String>,
    Form(wanted): Form<Wanted>,
) -> Response {
    let t = guest.look.lang.text();
    let text = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let outcome = match text(wanted.file) {
        _ if !guest.is_admin() => Err(role(&guest)),
        None => Err(Problem::new(ProblemKind::Invalid, t.new_no_path).param("file")),
        Some(file) => {
            let wish = Import { source: key, file, to: text(wanted.to).map(DiskId::from_stored), served_name: text(wanted.served_name) };
            web.imports.begin(&guest.principal.account, wish).await
        }
    };
    match outcome {
        Ok(_) => respond::go(&headers, "/ui/storage"),
        Err(problem) => {
            let (title, body) = refusal::words(&problem, t);
            refusal::notice(refusal::status(&problem), &title, &body)
        }
    }
}

/// `POST /ui/storage/tasks/{id}/cancel`
pub(crate) async fn cancel(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let outcome = if guest.is_admin() { web.tasks.cancel(&TaskId::from_stored(id)) } else { Err(role(&guest)) };
    match outcome {
        Ok(()) => respond::done(),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}
