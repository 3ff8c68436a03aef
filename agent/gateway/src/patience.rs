//! How long a request may wait for its start: what its client says, or what clients usually bear. Pure.

use std::time::Duration;

use axum::http::HeaderMap;

use crate::GatewayLimits;

/// Headers in which SDKs tell their own time limit, in seconds.
const STATED: [&str; 2] = ["x-stainless-read-timeout", "x-stainless-timeout"];
/// No client waits longer.
const MOST: f64 = 3600.0;

/// The patience of a request.
pub(crate) fn of(headers: &HeaderMap, streamed: bool, limits: &GatewayLimits) -> Duration {
    let stated = STATED.iter().find_map(|name| headers.get(*name)).and_then(|v| v.to_str().ok()).and_then(|v| v.trim().parse::<f64>().ok());
    match stated.filter(|seconds| *seconds >= 1.0) {
        Some(seconds) => Duration::from_secs_f64(seconds.min(MOST)),
        None if streamed => limits.patience_streamed,
        None => limits.patience_whole,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_client_that_states_its_time_limit_is_taken_at_its_word() {
        let limits = GatewayLimits::default();
        let with = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-stainless-timeout", HeaderValue::from_static(value));
            of(&headers, true, &limits)
        };
        assert_eq!((with("600"), with("1e9")), (Duration::from_secs(600), Duration::from_secs(3600)));
        for senseless in ["", "soon", "-4", "NaN", "0"] {
            assert_eq!(with(senseless), limits.patience_streamed, "{senseless}");
        }
        assert_eq!(of(&HeaderMap::new(), false, &limits), limits.patience_whole);
    }
}
