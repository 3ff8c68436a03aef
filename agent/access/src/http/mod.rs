//! The gate in front of `/api` and `/ui`: which Host names are ours, whether a changing call comes from our own pages, who is asking.
//!
//! In: any request. Out: the request with a `Visitor` attached, or a refusal before a handler ran. It is not for `/v1`, whose
//! callers show keys, and it never reads a body.

mod answer;
mod cookie;
mod gate;
mod hosts;
mod origin;
mod visitor;

pub use answer::ProblemResponse;
pub use cookie::{COOKIE, expired_cookie, presented as presented_cookie, session_cookie};
pub use gate::{host_of, protect};
pub use hosts::{HostRules, OwnAddress, OwnName, without_port};
pub use visitor::{LocalAddress, OverTls, SignedIn, Visitor};
