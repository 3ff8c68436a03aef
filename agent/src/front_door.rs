//! Sends requests to where they are answered: those for engines straight to the gateway, the others through the console's routes.
//!
//! A request for an engine has one way to go, so it pays for no table of routes, no layers, and no copy of what they note about it.

use std::{
    any::Any,
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{Router, extract::Request, response::Response};
use futures_util::FutureExt;
use tower::ServiceExt;
use tower_http::{catch_panic::CatchPanicLayer, trace::TraceLayer};
use warden_gateway::Gateway;

/// See the module.
#[derive(Clone)]
pub(crate) struct FrontDoor {
    gateway: Arc<Gateway>,
    console: Router,
}

impl FrontDoor {
    /// The gateway, and API and pages.
    pub(crate) fn new(gateway: Arc<Gateway>, console: Router) -> Self {
        Self { gateway, console: console.layer(CatchPanicLayer::custom(panicked)).layer(TraceLayer::new_for_http()) }
    }
}

impl tower::Service<Request> for FrontDoor {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if Gateway::takes(request.uri().path()) {
            let answer = AssertUnwindSafe(Arc::clone(&self.gateway).serve(request)).catch_unwind();
            return Box::pin(async move { Ok(answer.await.unwrap_or_else(panicked)) });
        }
        Box::pin(self.console.clone().oneshot(request))
    }
}

/// A panic is a defect of ours; the caller still gets a sentence and the process goes on.
fn panicked(_: Box<dyn Any + Send>) -> Response {
    let body =
        r#"{"detail":{"error_code":"internal","message":"The agent hit a fault of its own while answering; it goes on. The log has the details."}}"#;
    let mut response = Response::new(axum::body::Body::from(body));
    *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}
