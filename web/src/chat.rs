//! `/ui/chat`: talk to a loaded model. The page is an empty conversation; `chat.js` sends it to `POST /api/chat/completions`.

use askama::Template;
use axum::{
    extract::{Query, State},
    http::HeaderMap,
    response::Response,
};
use serde::Deserialize;

use crate::{Web, assets::url, refusal::refuse, respond, shell::Shell, visit::Guest};

/// Texts that hold a blank which the script fills.
struct Words {
    status: String,
    tokens: String,
    seconds: String,
    rate: String,
}

#[derive(Template)]
#[template(path = "chat.html")]
struct Chat {
    page: Shell,
    models: Vec<String>,
    chosen: String,
    starters: [&'static str; 3],
    words: Words,
}

#[derive(Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    model: String,
}

/// `GET /ui/chat?model=…`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest, Query(wanted): Query<Wanted>) -> Response {
    let t = guest.look.lang.text();
    match Shell::new(&web, &guest, t.chat_title, "/ui/live/strip").await {
        Ok(page) => respond::page(&Chat {
            page,
            models: web.serving.table().models.keys().cloned().collect(),
            chosen: wanted.model,
            starters: [t.chat_starter_one, t.chat_starter_two, t.chat_starter_three],
            words: Words {
                status: t.chat_status("{status}"),
                tokens: t.chat_tokens("{n}"),
                seconds: t.chat_seconds("{n}"),
                rate: t.chat_rate("{n}"),
            },
        }),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}
