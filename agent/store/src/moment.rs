//! Moments as the database keeps them: milliseconds since the epoch, UTC.

use jiff::Timestamp;

/// Milliseconds since the epoch.
#[must_use]
pub fn to_ms(at: Timestamp) -> i64 {
    at.as_millisecond()
}

/// The moment of a stored number of milliseconds; a number out of any calendar reads as the epoch.
#[must_use]
pub fn from_ms(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH)
}
