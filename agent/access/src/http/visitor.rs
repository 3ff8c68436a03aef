//! Who is asking, as handlers get it.

use std::net::IpAddr;

use axum::{extract::FromRequestParts, http::request::Parts};
use warden_domain::{
    Problem, ProblemKind,
    access::{ClientAddr, Principal},
};

use super::ProblemResponse;

/// A mark the TLS listener puts into a request's extensions; without it the connection counts as plain.
#[derive(Clone, Copy, Debug)]
pub struct OverTls;

/// The address of this box on which a connection came in. A listener puts it into a request's extensions; without it the address counts
/// as unknown.
#[derive(Clone, Copy, Debug)]
pub struct LocalAddress(pub IpAddr);

/// Whoever sent this request, signed in or not. An extractor.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// Who is signed in, if anybody.
    pub principal: Option<Principal>,
    /// Where the connection comes from. Forwarding headers are not believed.
    pub client: ClientAddr,
    /// Whether the connection is TLS, and cookies must be `Secure`.
    pub secure: bool,
    /// The address of this box on which the connection came in, when it is known.
    pub local: Option<IpAddr>,
}

impl<S: Send + Sync> FromRequestParts<S> for Visitor {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemResponse> {
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| ProblemResponse(Problem::internal("This path lies outside the gate that says who is asking.")))
    }
}

/// The account that is signed in; without one the answer is 401. An extractor.
#[derive(Clone, Debug)]
pub struct SignedIn(pub Principal);

impl<S: Send + Sync> FromRequestParts<S> for SignedIn {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
        let visitor = Visitor::from_request_parts(parts, state).await?;
        visitor.principal.map(Self).ok_or_else(|| {
            ProblemResponse(Problem::new(ProblemKind::Unauthorized, "You are not signed in, or your session is over.").hint("Sign in and try again."))
        })
    }
}
