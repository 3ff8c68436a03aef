//! Numbers of a request, checked and otherwise kept as they came.

use serde_json::value::RawValue;
use warden_domain::{Problem, ProblemKind, units::Tokens};

/// Bytes per token that no real text stays under by much: more tokens than this a body hardly makes.
const BYTES_PER_TOKEN: u64 = 2;
/// What a chat template and the answer's own frame add.
const FRAME: u64 = 256;

/// A number, as it came.
pub(super) fn number<'a>(value: &'a RawValue, name: &str) -> Result<&'a RawValue, Problem> {
    match value.get().as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => Ok(value),
        _ => Err(wrong(name, "a number")),
    }
}

/// A limit on the answer: a whole number above 0.
pub(super) fn max_tokens(value: &RawValue, name: &str) -> Result<u64, Problem> {
    match serde_json::from_str::<u64>(value.get()) {
        Ok(0) | Err(_) => Err(wrong(name, "a whole number above 0")),
        Ok(n) => Ok(n),
    }
}

fn wrong(name: &str, what: &str) -> Problem {
    Problem::new(ProblemKind::BadRequest, format!("'{name}' must be {what}.")).param(name)
}

/// Whether a limit can be told to the engine. Clients ask for far more than a window has (128000); left out, the engine uses the room
/// that the prompt leaves. A small limit is always told, because a longer answer would surprise.
pub(crate) fn fits(asked: u64, window: Option<Tokens>, body: usize) -> bool {
    let Some(Tokens(window)) = window else { return true };
    let prompt = (body as u64 / BYTES_PER_TOKEN).saturating_add(FRAME);
    asked <= window / 8 || asked.saturating_add(prompt) <= window
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_beyond_the_window_is_left_out_and_one_that_fits_is_told() {
        let window = Some(Tokens(32_768));
        assert!(!fits(128_000, window, 1000));
        assert!(!fits(30_000, window, 20_000));
        assert!(fits(16_000, window, 20_000));
        assert!(fits(4_000, window, 10_000_000), "a short answer stays short");
        assert!(fits(128_000, None, 1000));
    }

    #[test]
    fn a_limit_that_is_none_is_refused_by_name() {
        for text in ["0", "-1", "\"5\"", "1.5", "null", "true"] {
            let value = RawValue::from_string(text.to_owned()).unwrap();
            assert_eq!(max_tokens(&value, "max_tokens").unwrap_err().param.as_deref(), Some("max_tokens"), "{text}");
        }
        assert!(number(&RawValue::from_string("\"hot\"".to_owned()).unwrap(), "temperature").is_err());
    }
}
