//! How long a test waits. Times in the tests are those of a quiet machine; a busy one may take five times as long.

use std::time::Duration;

/// The timeout for something that takes `seconds` on a quiet machine: five times as long.
pub const fn quiet(seconds: u64) -> Duration {
    Duration::from_secs(seconds * 5)
}
