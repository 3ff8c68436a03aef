//! How long things may take: a file of the image, different for emulated and real machines. Text in, durations out.

use std::time::Duration;

use serde::Deserialize;

/// Where the image keeps them.
pub const FILE: &str = "/usr/lib/warden/health.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    dwell: u64,
    deadline: u64,
    model: u64,
}

/// The times of one image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// All checks must have passed for so long, without a break.
    pub dwell: Duration,
    /// Since the gate was first started in this boot; then the slot is bad.
    pub deadline: Duration,
    /// For one model's token.
    pub model: Duration,
}

impl Times {
    /// Reads the file's text.
    ///
    /// # Errors
    /// A sentence about what is wrong in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|cause| format!("{FILE} cannot be used: {cause}"))?;
        if file.dwell == 0 || file.model == 0 || file.deadline <= file.dwell || file.deadline > 86_400 {
            return Err(format!("{FILE} cannot be used: 0 < dwell < deadline <= 86400 and model > 0 are needed"));
        }
        let seconds = Duration::from_secs;
        Ok(Self { dwell: seconds(file.dwell), deadline: seconds(file.deadline), model: seconds(file.model) })
    }

    /// Pause between two looks.
    #[must_use]
    pub fn pause(&self) -> Duration {
        (self.dwell / 6).clamp(Duration::from_secs(1), Duration::from_secs(15))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_both_profiles_can_be_read() {
        let vm = Times::parse(include_str!("../../../image/health/vm.toml")).unwrap();
        assert_eq!((vm.dwell.as_secs(), vm.deadline.as_secs()), (10, 120));
        let hardware = Times::parse(include_str!("../../../image/health/hardware.toml")).unwrap();
        assert_eq!((hardware.dwell.as_secs(), hardware.deadline.as_secs()), (180, 1200));
    }

    #[test]
    fn a_file_that_would_wait_for_ever_or_not_at_all_is_refused() {
        for text in ["", "dwell = 10\ndeadline = 10\nmodel = 1", "dwell = 0\ndeadline = 10\nmodel = 1", "dwell = 1\ndeadline = 9\nmodel = 1\nx = 1"] {
            assert!(Times::parse(text).is_err(), "{text:?}");
        }
    }
}
