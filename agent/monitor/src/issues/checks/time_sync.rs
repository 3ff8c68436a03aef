//! Whether a time server has set the clock since the start.

use std::path::Path;

use async_trait::async_trait;
use warden_domain::issue::{Check, Finding, IssueCode, Looked};

use super::{Appliance, not_the_appliance, off_thread};

/// The time service makes this file when a server has set the clock; its folder is there while it runs.
const MARK: &str = "/run/systemd/timesync/synchronized";

fn decide(synchronised: bool) -> Vec<Finding> {
    if synchronised {
        return Vec::new();
    }
    vec![Finding {
        code: IssueCode::ClockNotSynchronised,
        subject: "clock".to_owned(),
        sentence: "No time server has set the clock since the appliance started; it shows what the machine's own clock said.".to_owned(),
        hint: "Check the network and the time servers. Without any, set the clock by hand and dismiss this issue.".to_owned(),
        fix: None,
    }]
}

/// Looks for the mark.
pub(super) struct TimeSync {
    pub(super) appliance: Appliance,
}

#[async_trait]
impl Check for TimeSync {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::ClockNotSynchronised]
    }

    async fn look(&self) -> Looked {
        if self.appliance == Appliance::No {
            return not_the_appliance();
        }
        match off_thread("The mark of the time service", || Path::new(MARK).try_exists()).await {
            Ok(there) => Looked::Seen(decide(there)),
            Err(because) => Looked::NotChecked(because),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_no_issue() {
        assert!(decide(true).is_empty());
        assert_eq!(decide(false)[0].code, IssueCode::ClockNotSynchronised);
    }

    #[test]
    fn a_box_that_just_started_is_given_time_to_find_a_server() {
        assert!(IssueCode::ClockNotSynchronised.patience() >= std::time::Duration::from_secs(600));
    }
}
