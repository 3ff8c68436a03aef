//! Which headers of an engine's answer go on to the client. Towards the engine only our own few are sent, so a key can never reach it.

use axum::http::{HeaderMap, HeaderName, header};

/// Headers that belong to one connection, or that speak for a server that is not the one the client talks to.
const KEPT_BACK: [&str; 13] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "server",
    "date",
    "set-cookie",
    "x-request-id",
];

/// The headers to send on. `length_known`: the body goes through unchanged, so its length stays true.
pub(crate) fn onward(upstream: &HeaderMap, length_known: bool) -> HeaderMap {
    let named: Vec<String> = upstream
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let passes = |name: &HeaderName| {
        let text = name.as_str();
        // Cross-origin rules are ours to set, not the engine's.
        !KEPT_BACK.contains(&text)
            && !text.starts_with("access-control-")
            && !named.iter().any(|n| n == text)
            && (length_known || name != header::CONTENT_LENGTH)
    };
    upstream.iter().filter(|(name, _)| passes(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn an_engine_cannot_open_the_api_to_other_sites_or_set_cookies() {
        let mut upstream = HeaderMap::new();
        for (name, value) in [
            ("access-control-allow-origin", "*"),
            ("set-cookie", "a=b"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("server", "llama.cpp"),
            ("content-type", "application/json"),
            ("content-length", "5"),
            ("x-kept", "1"),
        ] {
            upstream.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let mut names: Vec<String> = onward(&upstream, true).keys().map(ToString::to_string).collect();
        names.sort();
        assert_eq!(names, ["content-length", "content-type", "x-kept"]);
        assert!(!onward(&upstream, false).contains_key("content-length"));
    }
}
