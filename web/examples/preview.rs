//! Serves the console over an invented box, for looking at pages while styling them. Not part of the product.
//!
//! `cargo run -p warden-web --example preview -- --listen 127.0.0.1:8099 --scene busy`. Scenes: `fresh` (nobody has claimed it, the
//! claim code is K7QM-4TXH-2WPA), `empty`, `busy`, `building`. All but `fresh` have the admin `ada` with the password
//! `a long enough password`, and a session under the cookie `warden_session=cookie-of-the-admin`.

#[path = "../../tests/fakes/ports.rs"]
mod ports;
#[path = "preview/scenes.rs"]
mod scenes;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    response::{IntoResponse, Response, Sse, sse::Event},
    routing::post,
};
use clap::Parser;
use futures_util::{StreamExt, stream};
use serde_json::json;
use warden_access::http::{HostRules, protect};
use warden_web::{Profile, WebParts, router};

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value = "127.0.0.1:8099")]
    listen: SocketAddr,
    #[arg(long, default_value = "busy")]
    scene: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let world = scenes::world(&arguments.scene).ok_or("scenes are fresh, empty, busy, building")?;
    let ports = Arc::new(world);
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
        version: "0.1.0",
        network: ports.place.clone(),
        names: ports.place.clone(),
        time: ports.place.clone(),
        profile: Profile::Dev,
        dev: true,
    };
    let app = Router::new().route("/api/chat/completions", post(chat)).merge(router(parts));
    let hosts = HostRules { own_names: Arc::new(|_| false), any_loopback: true, own_addresses: Arc::new(|_| true) };
    let app = protect(app, ports, hosts);
    let listener = tokio::net::TcpListener::bind(arguments.listen).await?;
    println!("preview of scene {} on http://{}/ui/", arguments.scene, arguments.listen);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}

/// An invented answer, word by word.
async fn chat(Json(body): Json<serde_json::Value>) -> Response {
    if body["model"] == "missing" {
        return (
            axum::http::StatusCode::NOT_FOUND,
            Json(json!({"error": {"message": "The model \"missing\" is not loaded. Loaded are: smollm2-135m."}})),
        )
            .into_response();
    }
    let words = "A language model is a program that has read a great deal of text and predicts which word comes next. <b>Asked</b> a question, it continues the conversation one token at a time, \
        which is why you see the answer arrive piece by piece.";
    let pieces: Vec<String> = words.split_inclusive(' ').map(ToOwned::to_owned).collect();
    let count = pieces.len();
    let events = stream::iter(pieces)
        .map(|piece| json!({"choices": [{"delta": {"content": piece}}]}).to_string())
        .chain(stream::iter([json!({"choices": [], "usage": {"prompt_tokens": 31, "completion_tokens": count}}).to_string(), "[DONE]".to_owned()]))
        .then(|data| async move {
            tokio::time::sleep(Duration::from_millis(35)).await;
            Ok::<_, Infallible>(Event::default().data(data))
        });
    Sse::new(events).into_response()
}
