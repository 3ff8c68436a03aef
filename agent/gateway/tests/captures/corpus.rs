//! The recorded requests, wherever they lie.

use std::path::{Path, PathBuf};

use warden_domain::{engine::EngineKind, units::Tokens};
use warden_fixtures::captures::{self, Capture};
use warden_gateway::dialects::{Target, messages::MessagesRequest, responses::ResponsesRequest};

/// Where the translated requests go.
pub const TARGET: Target<'static> = Target { model: "tiny", engine: EngineKind::LlamaCpp, images: Some(true), window: Some(Tokens(131_072)) };

fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap()
}

/// Whether the recordings themselves are read.
pub fn is_genuine() -> bool {
    captures::folder(&root()).is_some()
}

/// The requests of a route; of `/v1/messages` also those that only count.
pub fn of(route: &str) -> Vec<Capture> {
    let (all, genuine) = captures::corpus(&root()).unwrap();
    assert!(!genuine || all.len() > 150, "only {} recordings were read", all.len());
    let own: Vec<Capture> = all.into_iter().filter(|c| c.route().starts_with(route)).collect();
    assert!(own.len() > 8, "only {} requests of {route}", own.len());
    own
}

/// What the translators make of a body.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    /// The chat request, or why there is none.
    pub chat: Result<Vec<u8>, String>,
    /// What nobody read.
    pub left: Vec<String>,
    /// Everything else that is kept of it.
    pub kept: String,
}

/// Translates a body of this route.
pub fn make(route: &str, body: &str) -> Made {
    let refused = |problem: warden_domain::Problem| Made { chat: Err(problem.full_text()), left: Vec::new(), kept: String::new() };
    if route.starts_with("/v1/messages") {
        let request = match MessagesRequest::read(body.as_bytes()) {
            Ok(request) => request,
            Err(problem) => return refused(problem),
        };
        let chat = if route.ends_with("/count_tokens") { request.count(&TARGET) } else { request.chat(&TARGET) };
        let kept = format!("{:?}", (request.model(), request.streams(), request.session(), request.plan("req_1")));
        Made { chat: chat.map_err(|p| p.full_text()), left: request.leftovers().names().to_vec(), kept }
    } else {
        let request = match ResponsesRequest::read(body.as_bytes()) {
            Ok(request) => request,
            Err(problem) => return refused(problem),
        };
        let plan = request.plan("req_1", 5).map_err(|p| p.full_text());
        let kept = format!("{:?}", (request.model(), request.streams(), request.session(), plan));
        Made { chat: request.chat(&TARGET).map_err(|p| p.full_text()), left: request.leftovers().names().to_vec(), kept }
    }
}
