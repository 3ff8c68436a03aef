//! System services that failed.

use std::sync::Arc;

use async_trait::async_trait;
use warden_domain::issue::{Check, Finding, IssueCode, Looked, Said};

use super::{Appliance, not_the_appliance};
use crate::facts::units::{FailedUnit, Units};

/// More than this at once is one fault with many faces; the rest is left out.
const MOST: usize = 12;

fn decide(failed: &[FailedUnit]) -> Vec<Finding> {
    let of = |unit: &FailedUnit| {
        let what = if unit.description.is_empty() || unit.description == unit.name { String::new() } else { format!(" ({})", unit.description) };
        Finding {
            code: IssueCode::UnitFailed,
            subject: unit.name.clone(),
            said: Said::UnitFailed { unit: format!("{}{what}", unit.name) },
            hint: "Restart the appliance when it is convenient. If it fails again, ask for support.".to_owned(),
            fix: None,
        }
    };
    failed.iter().take(MOST).map(of).collect()
}

/// Asks the system manager.
pub(super) struct FailedUnits {
    pub(super) appliance: Appliance,
    pub(super) units: Arc<dyn Units>,
}

#[async_trait]
impl Check for FailedUnits {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::UnitFailed]
    }

    async fn look(&self) -> Looked {
        if self.appliance == Appliance::No {
            return not_the_appliance();
        }
        match self.units.failed().await {
            Ok(failed) => Looked::Seen(decide(&failed)),
            Err(problem) => Looked::NotChecked(problem.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failed_service_is_named_and_a_flood_of_them_is_cut() {
        let unit = |n: usize| FailedUnit { name: format!("u{n}.service"), description: "Names of hosts".into() };
        let found = decide(&[unit(1)]);
        assert_eq!(found[0].said.to_string(), "The system service u1.service (Names of hosts) failed.");
        assert_eq!(decide(&(0..40).map(unit).collect::<Vec<_>>()).len(), MOST);
    }
}
