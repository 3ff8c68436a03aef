//! Who asks: finds the key among the headers and has it looked up. Pure but for the look-up in a snapshot.

use axum::http::{HeaderMap, header};
use warden_domain::{
    Problem, ProblemKind,
    key::{Caller, KeyDirectory, KeyRefusal},
};

/// Headers besides `Authorization` that may carry the key.
const OTHER: [&str; 2] = ["x-lmwarden-key", "x-api-key"];

/// Who sent this request.
pub(crate) fn caller(keys: &dyn KeyDirectory, headers: &HeaderMap) -> Result<Caller, Problem> {
    let secret = presented(headers)
        .ok_or_else(|| refused("No key was sent.", "Make a key in the console under Keys and send it as 'Authorization: Bearer vw_...'."))?;
    keys.identify(secret).map_err(|why| match why {
        KeyRefusal::Malformed => {
            refused("What was sent is not a key of this server.", "A key starts with 'vw_' and has 46 characters; copy it whole.")
        }
        KeyRefusal::Unknown => {
            refused("This key is not known here.", "Check that it belongs to this server, or make a new one in the console under Keys.")
        }
        KeyRefusal::Revoked => refused("This key was revoked.", "Make a new one in the console under Keys."),
    })
}

fn presented(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()).and_then(|line| {
        let (scheme, rest) = line.trim().split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| rest.trim())
    });
    let other = || OTHER.iter().find_map(|name| headers.get(*name)).and_then(|v| v.to_str().ok()).map(str::trim);
    bearer.filter(|s| !s.is_empty()).or_else(other).filter(|s| !s.is_empty())
}

fn refused(message: &str, hint: &str) -> Problem {
    Problem::new(ProblemKind::Unauthorized, message).hint(hint)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn with(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(n, v)| (axum::http::HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn a_key_is_found_wherever_a_client_puts_it() {
        assert_eq!(presented(&with(&[("authorization", "Bearer vw_a")])), Some("vw_a"));
        assert_eq!(presented(&with(&[("authorization", "bearer  vw_a ")])), Some("vw_a"));
        assert_eq!(presented(&with(&[("x-lmwarden-key", "vw_b")])), Some("vw_b"));
        assert_eq!(presented(&with(&[("authorization", "Basic abc"), ("x-api-key", "vw_c")])), Some("vw_c"));
        for none in [with(&[]), with(&[("authorization", "Bearer ")]), with(&[("authorization", "vw_a")]), with(&[("x-api-key", "")])] {
            assert_eq!(presented(&none), None);
        }
    }
}
