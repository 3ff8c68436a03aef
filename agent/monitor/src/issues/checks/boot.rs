//! Whether the box gave up a system slot.

use std::path::PathBuf;

use async_trait::async_trait;
use warden_domain::issue::{Check, Finding, IssueCode, Looked, Said};

use super::{Appliance, not_the_appliance, off_thread};
use crate::facts::boot::{self, Fallback};

fn decide(fallback: Option<Fallback>) -> Vec<Finding> {
    let of = |fallback: Fallback| Finding {
        code: IssueCode::BootFellBack,
        subject: format!("fallback-{}", fallback.written),
        said: Said::BootFellBack { why: fallback.sentence },
        hint: "Install the update again, or a newer one. Dismiss this issue once you know about it.".to_owned(),
        fix: None,
    };
    fallback.map(of).into_iter().collect()
}

/// Reads what the initrd left.
pub(super) struct Boot {
    pub(super) appliance: Appliance,
    /// Where it is written down.
    pub(super) record: PathBuf,
}

#[async_trait]
impl Check for Boot {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::BootFellBack]
    }

    async fn look(&self) -> Looked {
        if self.appliance == Appliance::No {
            return not_the_appliance();
        }
        match off_thread("The record of the last starts", {
            let record = self.record.clone();
            move || boot::fallback(&record)
        })
        .await
        {
            Ok(fallback) => Looked::Seen(decide(fallback)),
            Err(because) => Looked::NotChecked(because),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_fallback_is_another_issue_than_one_that_was_dismissed() {
        let at = |written| decide(Some(Fallback { sentence: "Slot b was started 3 times.".into(), written }));
        assert_ne!(at(1)[0].subject, at(2)[0].subject);
        assert!(at(1)[0].said.to_string().contains("Slot b"));
        assert!(decide(None).is_empty());
    }

    #[tokio::test]
    async fn what_the_initrd_wrote_down_is_an_issue_until_the_record_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("fallback");
        let check = Boot { appliance: Appliance::Yes, record: record.clone() };
        assert_eq!(check.look().await, Looked::Seen(Vec::new()));
        std::fs::write(&record, "Slot b was started 3 times without being confirmed.\n").unwrap();
        let Looked::Seen(found) = check.look().await else { panic!("it could not look") };
        assert_eq!(found[0].code, IssueCode::BootFellBack);
        assert!(found[0].said.to_string().ends_with("Slot b was started 3 times without being confirmed."));
    }
}
