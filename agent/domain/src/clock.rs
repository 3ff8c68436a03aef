//! The wall clock, in one place. Durations are measured with `std::time::Instant` by their owners; this is only for moments that
//! people or files see. All moments are UTC.

use jiff::Timestamp;

/// The present moment in UTC, cut to milliseconds (what the store keeps).
#[must_use]
#[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn now() -> Timestamp {
    let ms = Timestamp::now().as_millisecond();
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The UTC minute a moment lies in, counted from the epoch; the grain of usage totals.
#[must_use]
pub fn minute_of(at: Timestamp) -> i64 {
    at.as_second().div_euclid(60)
}
