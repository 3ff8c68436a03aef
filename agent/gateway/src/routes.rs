//! What is offered under `/v1`, as a table. Pure.

use axum::http::Method;
use warden_domain::{Problem, ProblemKind};

use crate::dialects::Dialect;

/// What a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// The list of models.
    Models,
    /// One model.
    Model(&'a str),
    /// A call that is answered by an engine.
    Engine(&'static Call),
    /// How long the prompt of a Messages request is.
    Count,
}

/// A call that is answered by an engine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// Our path.
    pub path: &'static str,
    /// The engine's path.
    pub upstream: &'static str,
    /// Whether answers can be streamed; then usage is asked for.
    pub streams: bool,
    /// How its clients speak. What is not chat is translated.
    pub dialect: Dialect,
    /// The body is a form (`multipart/form-data`), not JSON.
    pub form: bool,
    /// Only some engines have it; one that has not is told apart from a wrong request.
    pub optional: bool,
}

/// A call that goes through as bytes, under the same path.
const fn bytes(path: &'static str, streams: bool) -> Call {
    Call { path, upstream: path, streams, dialect: Dialect::Chat, form: false, optional: false }
}

/// A call that is translated.
const fn told(path: &'static str, dialect: Dialect) -> Call {
    Call { path, upstream: "/v1/chat/completions", streams: true, dialect, form: false, optional: false }
}

/// A call that only some engines have. Whatever it says, it goes through as it is.
const fn optional(path: &'static str, form: bool) -> Call {
    Call { path, upstream: path, streams: false, dialect: Dialect::Chat, form, optional: true }
}

/// Calls that are answered by an engine.
pub(crate) const CALLS: [Call; 12] = [
    bytes("/v1/chat/completions", true),
    bytes("/v1/completions", true),
    bytes("/v1/embeddings", false),
    told("/v1/messages", Dialect::Messages),
    told(RESPONSES, Dialect::Responses),
    optional("/v1/rerank", false),
    optional("/v1/score", false),
    optional("/v1/audio/speech", false),
    optional("/v1/audio/transcriptions", true),
    optional("/v1/audio/translations", true),
    optional(TOKENIZE, false),
    optional(DETOKENIZE, false),
];

/// Calls that lie outside of `/v1`, where engines have them.
pub(crate) const TOKENIZE: &str = "/tokenize";
/// The other one.
pub(crate) const DETOKENIZE: &str = "/detokenize";

/// The chat call, which the console uses as well.
pub(crate) const CHAT: &Call = &CALLS[0];
/// Asked with GET by a client that would rather speak WebSocket.
const RESPONSES: &str = "/v1/responses";
const COUNT: &str = "/v1/messages/count_tokens";

/// How clients of a path speak, also where nothing lies. Both vendors' SDKs ask for models; one of them names its version.
pub(crate) fn dialect(path: &str, names_anthropic: bool) -> Dialect {
    let under = |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if under("/v1/messages") || (names_anthropic && under("/v1/models")) {
        Dialect::Messages
    } else if under(RESPONSES) {
        Dialect::Responses
    } else {
        Dialect::Chat
    }
}

/// Why a path and method are not served.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotServed {
    /// Nothing lies there.
    Unknown,
    /// Something lies there, for another method.
    Method {
        /// The method that is offered.
        allow: &'static str,
    },
    /// A WebSocket is asked for, and there is none: the client then posts.
    Upgrade,
}

/// Looks a path and method up.
pub(crate) fn find<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, NotServed> {
    let (route, allow) = if path == "/v1/models" {
        (Route::Models, "GET")
    } else if let Some(name) = path.strip_prefix("/v1/models/").filter(|n| !n.is_empty()) {
        (Route::Model(name), "GET")
    } else if path == COUNT {
        (Route::Count, "POST")
    } else if path == RESPONSES && *method == Method::GET {
        return Err(NotServed::Upgrade);
    } else if let Some(call) = CALLS.iter().find(|c| c.path == path) {
        (Route::Engine(call), "POST")
    } else {
        return Err(NotServed::Unknown);
    };
    let fits = method.as_str() == allow || (allow == "GET" && *method == Method::HEAD);
    if fits { Ok(route) } else { Err(NotServed::Method { allow }) }
}

/// The refusal in words.
pub(crate) fn refusal(why: &NotServed, method: &Method, path: &str) -> Problem {
    let path: String = path.chars().take(200).collect();
    match why {
        NotServed::Method { allow } => {
            Problem::new(ProblemKind::MethodNotAllowed, format!("{path} does not take {method}.")).hint(format!("Use {allow}."))
        }
        NotServed::Upgrade => Problem::new(ProblemKind::UpgradeRequired, format!("{path} speaks no WebSocket."))
            .hint("Send the request with POST; the answer is streamed."),
        NotServed::Unknown => {
            let calls: Vec<String> = CALLS.iter().map(|c| format!("POST {}", c.path)).collect();
            Problem::new(ProblemKind::NotFound, format!("There is nothing at {path}."))
                .hint(format!("Offered are GET /v1/models, GET /v1/models/{{name}}, {}, POST {COUNT}.", calls.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_method_is_told_apart_from_a_wrong_path() {
        assert_eq!(find(&Method::GET, "/v1/models"), Ok(Route::Models));
        assert_eq!(find(&Method::HEAD, "/v1/models/tiny"), Ok(Route::Model("tiny")));
        assert_eq!(find(&Method::POST, "/v1/chat/completions"), Ok(Route::Engine(CHAT)));
        assert_eq!(find(&Method::GET, "/v1/embeddings"), Err(NotServed::Method { allow: "POST" }));
        assert!(matches!(find(&Method::POST, "/v1/audio/transcriptions"), Ok(Route::Engine(Call { form: true, optional: true, .. }))));
        assert!(matches!(find(&Method::POST, "/tokenize"), Ok(Route::Engine(Call { form: false, optional: true, .. }))));
        assert_eq!(find(&Method::POST, "/v1/messages/count_tokens"), Ok(Route::Count));
        assert_eq!(find(&Method::GET, "/v1/responses"), Err(NotServed::Upgrade));
        assert_eq!(find(&Method::DELETE, "/v1/models"), Err(NotServed::Method { allow: "GET" }));
        for path in ["/v1", "/v1/", "/v1/models/", "/v1/chat/completions/", "/v1/responses/resp_1", "/v1/messages/batches", "/v1/../props"] {
            assert_eq!(find(&Method::POST, path), Err(NotServed::Unknown), "{path}");
        }
    }

    #[test]
    fn a_lost_client_is_told_what_there_is() {
        let text = refusal(&NotServed::Unknown, &Method::POST, "/v1/nothing").full_text();
        for offered in [
            "/v1/nothing",
            "/v1/responses",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/embeddings",
            "/v1/models",
        ] {
            assert!(text.contains(offered), "{text}");
        }
    }

    #[test]
    fn a_client_is_answered_in_the_words_of_the_path_it_asked() {
        for (path, names_anthropic, expected) in [
            ("/v1/messages", false, Dialect::Messages),
            ("/v1/messages/count_tokens", false, Dialect::Messages),
            ("/v1/messagesx", false, Dialect::Chat),
            ("/v1/models", true, Dialect::Messages),
            ("/v1/models/x", false, Dialect::Chat),
            ("/v1/responses", false, Dialect::Responses),
            ("/v1/chat/completions", true, Dialect::Chat),
        ] {
            assert_eq!(dialect(path, names_anthropic), expected, "{path}");
        }
    }
}
