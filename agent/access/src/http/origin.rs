//! Whether a changing call comes from a page of our own. Pure.
//!
//! Browsers say so in `Sec-Fetch-Site`, older ones in `Origin`. A program that is no browser sends neither and is let through: it
//! cannot be tricked by a page, and a session still needs its CSRF proof.

use axum::http::{HeaderMap, Method, header};

/// Whether a method promises to change nothing.
pub(super) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Whether the call comes from our own page, or from no page at all. Over TLS a page that came unencrypted is not ours: anybody on the
/// way could have written it.
pub(super) fn is_ours(headers: &HeaderMap, host: &str, secure: bool) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site == "same-origin" || site == "none";
    }
    match headers.get(header::ORIGIN) {
        None => true,
        Some(origin) => origin.to_str().is_ok_and(|o| same_authority(o, host) && (!secure || o.starts_with("https://"))),
    }
}

fn same_authority(origin: &str, host: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let default = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let cut = |text: &str| text.strip_suffix(default).unwrap_or(text).to_ascii_lowercase();
    cut(authority) == cut(host)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn with(name: &'static str, value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn a_page_of_another_site_cannot_change_anything() {
        for site in ["cross-site", "same-site", "rubbish"] {
            assert!(!is_ours(&with("sec-fetch-site", site), "box:8080", false), "{site}");
        }
        for origin in ["https://evil.example", "null", "http://box:9090", "https://box.evil.example", "file://", "box:8080"] {
            assert!(!is_ours(&with("origin", origin), "box:8080", false), "{origin}");
        }
    }

    #[test]
    fn over_tls_a_page_that_came_unencrypted_is_not_ours() {
        assert!(!is_ours(&with("origin", "http://box"), "box", true));
        assert!(!is_ours(&with("origin", "http://box:443"), "box:443", true));
    }

    #[test]
    fn our_own_page_and_a_script_without_a_browser_pass() {
        assert!(is_ours(&with("sec-fetch-site", "same-origin"), "box:8080", false));
        assert!(is_ours(&with("origin", "http://box:8080"), "BOX:8080", false));
        assert!(is_ours(&with("origin", "https://box"), "box:443", true));
        assert!(is_ours(&with("origin", "https://box"), "box", false), "behind somebody's TLS front");
        assert!(is_ours(&HeaderMap::new(), "box:8080", true));
    }
}
