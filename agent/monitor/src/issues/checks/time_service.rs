//! Whether the service that keeps the clock runs.

use std::sync::Arc;

use async_trait::async_trait;
use warden_domain::issue::{Check, Finding, Fix, IssueCode, Looked};

use super::{Appliance, not_the_appliance};
use crate::facts::units::{TIME_SERVICE, Units};

fn decide(active: &str) -> Vec<Finding> {
    if matches!(active, "active" | "activating" | "reloading") {
        return Vec::new();
    }
    vec![Finding {
        code: IssueCode::TimeServiceStopped,
        subject: TIME_SERVICE.to_owned(),
        sentence: format!("The service that keeps the clock does not run ({active}); the clock drifts, and certificates and logs with it."),
        hint: "Start it here. If the clock is set by hand on purpose, dismiss this issue.".to_owned(),
        fix: Some(Fix::StartTimeService),
    }]
}

/// Asks the system manager.
pub(super) struct TimeService {
    pub(super) appliance: Appliance,
    pub(super) units: Arc<dyn Units>,
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
            Ok(active) => Looked::Seen(decide(&active)),
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
            assert_eq!(decide(state)[0].fix, Some(Fix::StartTimeService), "{state}");
        }
        assert!(decide("active").is_empty());
    }
}
