//! Request bodies: JSON of at most 1 MiB into a typed value, with a sentence that names the place when it is not.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, Request},
};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::error::Category;
use warden_access::http::ProblemResponse;
use warden_domain::{Problem, ProblemKind};

/// Largest body of a control call. Larger ones are no control calls.
const LIMIT: usize = 1 << 20;

/// A body that is not there whole by then is given up: whoever sends it need not be signed in.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

/// A JSON body as `T`.
pub struct JsonBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for JsonBody<T> {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, _: &S) -> Result<Self, ProblemResponse> {
        let bytes = read(request.into_body(), ARRIVES_WITHIN).await?;
        parse(&bytes).map(Self).map_err(ProblemResponse)
    }
}

/// Takes a body in, bounded in size and time.
async fn read(body: Body, within: Duration) -> Result<Bytes, Problem> {
    match tokio::time::timeout(within, axum::body::to_bytes(body, LIMIT)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(Problem::new(ProblemKind::TooLarge, "The body is larger than 1 MiB, or was cut off.")
            .hint("Send the fields of this call as one JSON object.")),
        Err(_) => Err(Problem::new(ProblemKind::BadRequest, format!("The body did not arrive within {} s.", within.as_secs()))
            .hint("Send the whole body at once.")),
    }
}

/// Parses a body; pure.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::new(ProblemKind::BadRequest, "The body is empty.").hint("Send a JSON object; GET /api/openapi.json lists its fields."));
    }
    // The reader would take a list for an object whose fields come in their order.
    if bytes.trim_ascii_start().starts_with(b"[") && serde_json::from_slice::<IgnoredAny>(bytes).is_ok() {
        return Err(Problem::new(ProblemKind::Invalid, "The body does not fit this call: it is a list.").hint("Send one JSON object."));
    }
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        Category::Data => Problem::new(ProblemKind::Invalid, format!("The body does not fit this call: {error}."))
            .hint("GET /api/openapi.json lists the fields of this call."),
        _ => Problem::new(ProblemKind::BadRequest, format!("The body is not valid JSON: {error}.")).hint("Send one JSON object."),
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only parsed")]
    struct Sample {
        name: String,
    }

    #[test]
    fn a_body_that_is_no_json_names_the_place() {
        let problem = parse::<Sample>(b"{\"name\": ").unwrap_err();
        assert_eq!(problem.kind, ProblemKind::BadRequest);
        assert!(problem.message.contains("line 1"), "{}", problem.message);
    }

    #[test]
    fn a_misspelt_field_is_named_beside_the_known_ones() {
        let problem = parse::<Sample>(b"{\"nam\": \"x\"}").unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Invalid);
        assert!(problem.message.contains("`nam`") && problem.message.contains("`name`"), "{}", problem.message);
    }

    #[tokio::test]
    async fn a_body_that_never_ends_does_not_hold_its_connection_for_ever() {
        let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let problem = read(body, Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(problem.kind, ProblemKind::BadRequest);
        assert!(problem.message.contains("did not arrive"), "{}", problem.message);
    }

    #[test]
    fn a_list_is_not_taken_for_an_object() {
        let problem = parse::<Sample>(b" [\"x\"]").unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Invalid);
        assert!(problem.message.contains("list"), "{}", problem.message);
    }

    #[test]
    fn an_empty_body_says_what_to_send() {
        assert!(parse::<Sample>(b" \n").unwrap_err().full_text().contains("JSON object"));
    }
}
