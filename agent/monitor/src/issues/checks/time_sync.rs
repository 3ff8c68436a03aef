//! Whether a time server has set the clock since the start.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use warden_domain::{
    issue::{Check, Finding, IssueCode, Looked, Said},
    time::{Time, TimeConfig},
};

use super::{Appliance, not_the_appliance, off_thread};

/// The time service makes this file when a server has set the clock; its folder is there while it runs.
pub(super) const MARK: &str = "/run/systemd/timesync/synchronized";

fn decide(wanted: &TimeConfig, synchronised: bool) -> Vec<Finding> {
    if synchronised || *wanted == TimeConfig::Manual {
        return Vec::new();
    }
    vec![Finding {
        code: IssueCode::ClockNotSynchronised,
        subject: "clock".to_owned(),
        said: Said::ClockNotSynchronised {},
        hint: "Check the network and the time servers. Without any, let the clock be set by hand in the time settings.".to_owned(),
        fix: None,
    }]
}

/// Looks for the mark.
pub(super) struct TimeSync {
    pub(super) appliance: Appliance,
    /// Where the mark lies.
    pub(super) mark: PathBuf,
    pub(super) time: Arc<dyn Time>,
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
        match off_thread("The mark of the time service", {
            let mark = self.mark.clone();
            move || mark.try_exists()
        })
        .await
        {
            Ok(there) => Looked::Seen(decide(&self.time.wanted().await, there)),
            Err(because) => Looked::NotChecked(because),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use warden_domain::{
        Problem,
        ids::AccountId,
        time::{TimeDocument, TimeState},
    };

    use super::*;

    /// A clock that shall come from servers.
    struct Servers;

    #[async_trait]
    impl Time for Servers {
        async fn document(&self) -> TimeDocument {
            let state =
                TimeState { now: Timestamp::UNIX_EPOCH, client_runs: None, synchronized: None, servers: None, server: None, hardware_clock: None };
            TimeDocument { config: TimeConfig::default(), state, unavailable: None }
        }

        async fn wanted(&self) -> TimeConfig {
            TimeConfig::default()
        }

        async fn configure(&self, _: TimeConfig, _: &AccountId) -> Result<TimeDocument, Problem> {
            Err(Problem::internal("nobody changes it here"))
        }

        async fn set_clock(&self, _: Timestamp, _: &AccountId) -> Result<TimeDocument, Problem> {
            Err(Problem::internal("nobody changes it here"))
        }
    }

    #[tokio::test]
    async fn the_mark_of_the_time_service_decides() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("synchronized");
        let check = TimeSync { appliance: Appliance::Yes, mark: mark.clone(), time: Arc::new(Servers) };
        assert!(matches!(check.look().await, Looked::Seen(found) if found[0].code == IssueCode::ClockNotSynchronised));
        std::fs::write(&mark, "").unwrap();
        assert_eq!(check.look().await, Looked::Seen(Vec::new()));
    }

    #[test]
    fn a_clock_that_was_set_by_a_server_or_is_set_by_hand_is_no_issue() {
        let servers = TimeConfig::default();
        assert!(decide(&servers, true).is_empty() && decide(&TimeConfig::Manual, false).is_empty());
        assert_eq!(decide(&servers, false)[0].code, IssueCode::ClockNotSynchronised);
    }

    #[test]
    fn a_box_that_just_started_is_given_time_to_find_a_server() {
        assert!(IssueCode::ClockNotSynchronised.patience() >= std::time::Duration::from_secs(600));
    }
}
