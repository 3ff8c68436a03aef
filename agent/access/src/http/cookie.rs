//! The session cookie, written and read.

use axum::http::{HeaderMap, HeaderValue, header};
use warden_domain::access::NewSession;

use crate::people::SESSION;

/// Name of the session cookie.
pub const COOKIE: &str = "warden_session";

/// The `Set-Cookie` value of a fresh session; `secure` when the browser came over TLS.
#[must_use]
pub fn session_cookie(session: &NewSession, secure: bool) -> HeaderValue {
    written(session.cookie.expose(), SESSION.as_secs(), secure)
}

/// The `Set-Cookie` value that makes the browser forget its session.
#[must_use]
pub fn expired_cookie(secure: bool) -> HeaderValue {
    written("", 0, secure)
}

fn written(value: &str, max_age: u64, secure: bool) -> HeaderValue {
    let end = if secure { "; Secure" } else { "" };
    let text = format!("{COOKIE}={value}; Path=/; Max-Age={max_age}; HttpOnly; SameSite=Strict{end}");
    // The value is base64url or empty, so this cannot fail; an empty header would still be harmless.
    let mut header = HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static(""));
    header.set_sensitive(true);
    header
}

/// The session cookie a request carries. Of several the first counts.
#[must_use]
pub fn presented(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, value)| *name == COOKIE && !value.is_empty() && value.len() <= 128)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("theme=dark; warden_session_x=no"));
        headers.append(header::COOKIE, HeaderValue::from_static("a=b;warden_session=abc; c"));
        assert_eq!(presented(&headers), Some("abc"));
        assert_eq!(presented(&HeaderMap::new()), None);
    }

    #[test]
    fn a_script_or_another_site_never_gets_the_cookie() {
        let text = expired_cookie(true).to_str().unwrap().to_owned();
        for part in ["HttpOnly", "SameSite=Strict", "Secure", "Max-Age=0", "Path=/"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!expired_cookie(false).to_str().unwrap().contains("Secure"));
    }
}
