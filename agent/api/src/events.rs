//! `GET /api/events`: server-sent events that say which kind of resource changed. The listener then reads the resource itself.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::State,
    response::{Sse, sse::Event, sse::KeepAlive},
};
use futures_util::{Stream, StreamExt};
use tokio_stream::wrappers::{BroadcastStream, errors::BroadcastStreamRecvError};
use warden_access::http::SignedIn;
use warden_domain::change::Topic;

use crate::ApiParts;

/// Which kind of resource changed, as events `change` with data `{"topic": "models"}`. After a gap the topic is `everything`.
#[utoipa::path(get, path = "/api/events", tag = "events", responses((status = 200, description = "An event stream", content_type = "text/event-stream")))]
pub async fn stream(State(parts): State<ApiParts>, _: SignedIn) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let changes = BroadcastStream::new(parts.changes.subscribe());
    Sse::new(changes.map(|news| Ok(Event::default().event("change").data(data(news))))).keep_alive(KeepAlive::new().interval(Duration::from_secs(15)))
}

fn data(news: Result<Topic, BroadcastStreamRecvError>) -> String {
    let topic = news.ok().and_then(|topic| serde_json::to_string(&topic).ok()).unwrap_or_else(|| "\"everything\"".into());
    format!("{{\"topic\":{topic}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_that_fell_behind_is_told_to_read_everything() {
        assert_eq!(data(Ok(Topic::Models)), r#"{"topic":"models"}"#);
        assert_eq!(data(Err(BroadcastStreamRecvError::Lagged(3))), r#"{"topic":"everything"}"#);
    }
}
