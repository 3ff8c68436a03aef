//! Whether the service that keeps the clock runs.

use std::sync::Arc;

use async_trait::async_trait;
use warden_domain::{
    issue::{Check, Finding, Fix, IssueCode, Looked, Said},
    time::{Time, TimeConfig},
};

use super::{Appliance, not_the_appliance};
use crate::facts::units::{TIME_SERVICE, Units};

/// A clock that is set by hand needs no such service, and has it stopped.
fn decide(wanted: &TimeConfig, active: &str) -> Vec<Finding> {
    if matches!(active, "active" | "activating" | "reloading") || *wanted == TimeConfig::Manual {
        return Vec::new();
    }
    vec![Finding {
        code: IssueCode::TimeServiceStopped,
        subject: TIME_SERVICE.to_owned(),
        said: Said::TimeServiceStopped { state: active.to_owned() },
        hint: "Start it here. If the clock is to be set by hand, say so in the time settings.".to_owned(),
        fix: Some(Fix::StartTimeService),
    }]
}

/// Asks the system manager.
pub(super) struct TimeService {
    pub(super) appliance: Appliance,
    pub(super) units: Arc<dyn Units>,
    pub(super) time: Arc<dyn Time>,
}

#[async_trait]
impl Check for TimeService {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::TimeServiceStopped]
    }

    async fn look(&self) -> Looked {
        if self.appliance == Appliance::No {
            return not_the_appliance();
        }
        match self.units.time_service().await {
            Ok(active) => Looked::Seen(decide(&self.time.wanted().await, &active)),
            Err(problem) => Looked::NotChecked(problem.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_and_a_failed_time_service_can_both_be_started_with_one_click() {
        for state in ["inactive", "failed", "deactivating"] {
            assert_eq!(decide(&TimeConfig::default(), state)[0].fix, Some(Fix::StartTimeService), "{state}");
        }
        assert!(decide(&TimeConfig::default(), "active").is_empty());
    }

    #[test]
    fn a_clock_set_by_hand_misses_no_service() {
        assert!(decide(&TimeConfig::Manual, "inactive").is_empty());
    }
}
