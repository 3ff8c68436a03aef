//! Takes the body of a form in before its handler runs: bounded in size and time, because whoever sends it need not be signed in.

use std::time::Duration;

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::StatusCode,
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Largest form. Files are not sent as forms of these pages.
const LIMIT: usize = 1 << 20;
/// A form that is not there whole by then is given up.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

/// The middleware. The two refusals are plain text: no page of ours sends such a form.
pub(crate) async fn whole_forms(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match whole(body, ARRIVES_WITHIN).await {
        Ok(body) => next.run(Request::from_parts(head, body)).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn whole(body: Body, within: Duration) -> Result<Body, (StatusCode, &'static str)> {
    match tokio::time::timeout(within, to_bytes(body, LIMIT)).await {
        Ok(Ok(bytes)) => Ok(Body::from(bytes)),
        Ok(Err(_)) => Err((StatusCode::PAYLOAD_TOO_LARGE, "The form is larger than 1 MiB, or was cut off. Send the page's own form again.\n")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "The form did not arrive in time. Send it again over a faster connection.\n")),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;

    use super::*;

    #[tokio::test]
    async fn a_form_that_never_ends_does_not_hold_its_connection_for_ever() {
        let body = Body::from_stream(tokio_stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(whole(body, Duration::from_millis(20)).await.unwrap_err().0, StatusCode::REQUEST_TIMEOUT);
    }

    #[tokio::test]
    async fn a_form_of_the_pages_passes_and_a_huge_one_does_not() {
        assert!(whole(Body::from("name=x"), ARRIVES_WITHIN).await.is_ok());
        assert_eq!(whole(Body::from(vec![b'x'; LIMIT + 1]), ARRIVES_WITHIN).await.unwrap_err().0, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
