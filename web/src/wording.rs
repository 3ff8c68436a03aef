//! How numbers, sizes, moments and states are written. Pure: the present moment comes in as an argument.

use std::time::Duration;

use jiff::Timestamp;
use warden_domain::{model::StateWord, units::Tokens};

use crate::catalogue::Text;

/// What stands where a value is not known.
pub(crate) const UNKNOWN: &str = "–";

/// A whole number with thin spaces in thousands: `1 234 567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// A token count that may be unknown.
pub(crate) fn tokens(count: Option<Tokens>) -> String {
    count.map_or_else(|| UNKNOWN.to_owned(), |n| grouped(n.0))
}

/// A moment as people read it, with the exact one beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// RFC 3339 in UTC.
    pub(crate) exact: String,
    /// Relative, in words.
    pub(crate) words: String,
}

impl Moment {
    pub(crate) fn new(at: Timestamp, now: Timestamp, t: &Text) -> Self {
        Self { exact: at.to_string(), words: ago(at, now, t) }
    }
}

/// How long ago something was, in the largest fitting unit. A clock that runs back a little is "just now".
pub(crate) fn ago(at: Timestamp, now: Timestamp, t: &Text) -> String {
    let seconds = u64::try_from(now.as_second() - at.as_second()).unwrap_or(0);
    match seconds {
        0..5 => t.time_now.to_owned(),
        5..60 => t.time_seconds(seconds),
        60..3_600 => t.time_minutes(seconds / 60),
        3_600..86_400 => t.time_hours(seconds / 3_600),
        _ => t.time_days(seconds / 86_400),
    }
}

/// How long something has taken: `9 s`, `1 m 12 s`, `2 h 5 m`.
pub(crate) fn elapsed(since: Timestamp, now: Timestamp) -> String {
    let seconds = Duration::from_secs(u64::try_from(now.as_second() - since.as_second()).unwrap_or(0)).as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} m {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// A state as colour and shape (`word`) and as text (`label`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateView {
    /// CSS class and icon name.
    pub(crate) word: &'static str,
    /// What people read.
    pub(crate) label: &'static str,
}

impl StateView {
    pub(crate) const fn of(state: StateWord, t: &Text) -> Self {
        let label = match state {
            StateWord::Running => t.state_running,
            StateWord::Loading => t.state_loading,
            StateWord::Waiting => t.state_waiting,
            StateWord::Failed => t.state_failed,
            StateWord::Stopped => t.state_stopped,
        };
        Self { word: state.as_str(), label }
    }
}

/// A loading phase in words; engines name phases in short codes.
pub(crate) fn phase(name: Option<&str>, t: &Text) -> String {
    match name {
        None => t.phase_unknown.to_owned(),
        Some("start") => t.phase_start.to_owned(),
        Some("metadata") => t.phase_metadata.to_owned(),
        Some("weights") => t.phase_weights.to_owned(),
        Some("context") => t.phase_cache.to_owned(),
        Some("warmup") => t.phase_warmup.to_owned(),
        Some("fit") => t.phase_fit.to_owned(),
        Some("compile") => t.phase_compile.to_owned(),
        Some("kv_cache") => t.phase_kv_cache.to_owned(),
        Some("graphs") => t.phase_graphs.to_owned(),
        Some("draining") => t.phase_draining.to_owned(),
        Some("stopping") => t.phase_stopping.to_owned(),
        Some("not answering") => t.phase_silent.to_owned(),
        Some(other) => t.phase_other(other),
    }
}

/// Whether two words are the same; templates compare with it because macro arguments come as references of varying depth.
pub(crate) fn is(left: impl AsRef<str>, right: impl AsRef<str>) -> bool {
    left.as_ref() == right.as_ref()
}

/// A progress bar with its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// What is going on.
    pub(crate) label: String,
    /// Numbers at the right: `123 of 208`, `1 m 12 s`.
    pub(crate) figures: String,
    /// Done and total, when known.
    pub(crate) steps: Option<(u32, u32)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::EN;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_large_count_can_be_read_at_a_glance() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1\u{202f}234\u{202f}567");
    }

    #[test]
    fn an_unknown_count_is_never_shown_as_nought() {
        assert_eq!(tokens(None), "–");
        assert_eq!(tokens(Some(Tokens(0))), "0");
    }

    #[test]
    fn a_moment_is_told_in_the_largest_fitting_unit() {
        assert_eq!(ago(at(100), at(102), &EN), "just now");
        assert_eq!(ago(at(100), at(90), &EN), "just now");
        assert_eq!(ago(at(0), at(59), &EN), "59 s ago");
        assert_eq!(ago(at(0), at(3_600), &EN), "1 h ago");
        assert_eq!(ago(at(0), at(86_400), &EN), "1 day ago");
        assert_eq!(elapsed(at(0), at(72)), "1 m 12 s");
    }

    #[test]
    fn a_phase_nobody_translated_is_still_shown() {
        assert_eq!(phase(Some("weights"), &EN), "reading weights");
        assert_eq!(phase(Some("graph capture"), &EN), "phase graph capture");
    }
}
