//! What is wrong with updates, for the list of issues: the channel is stale, an update did not work, the box gave up one of its two systems.

use std::sync::Arc;

use async_trait::async_trait;
use warden_domain::change::Topic;
use warden_domain::issue::{Check, Finding, IssueCode, Looked, Said};
use warden_domain::update::{UpdateFault, UpdatePhase};
use warden_update_record::{Fallback, Record};

use crate::room::{UpdateRoom, blocking, shown};

/// What is wrong with updates.
pub struct UpdateIssues {
    room: Arc<UpdateRoom>,
}

/// Whether the box gave up one of its two systems.
pub struct BootIssues {
    room: Arc<UpdateRoom>,
}

impl UpdateRoom {
    /// The checks of this room.
    #[must_use]
    pub fn checks(self: &Arc<Self>) -> Vec<Arc<dyn Check>> {
        vec![Arc::new(UpdateIssues { room: Arc::clone(self) }), Arc::new(BootIssues { room: Arc::clone(self) })]
    }
}

/// What the decision is made from.
#[derive(Clone, Debug, Default)]
struct Facts {
    stale: Option<String>,
    fault: Option<UpdateFault>,
    phase: Option<UpdatePhase>,
    version: Option<String>,
    went_back: Option<UpdateFault>,
    fallback: Option<Fallback>,
    /// What only the database of the failed system holds.
    left_behind: Option<String>,
}

fn decide(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(sentence) = &facts.stale {
        found.push(Finding {
            code: IssueCode::ChannelStale,
            subject: "updates".to_owned(),
            said: Said::text(sentence.clone()),
            hint: "Nothing else is affected. Look at the update server, the network and the clock; an update can still be installed by hand."
                .to_owned(),
            fix: None,
        });
    }
    if let Some(fault) = facts.fault.as_ref().filter(|_| facts.phase != Some(UpdatePhase::RolledBack)) {
        found.push(Finding {
            code: IssueCode::UpdateFailed,
            subject: "updates".to_owned(),
            said: Said::text(fault.sentence.clone()),
            hint: "The running system was not touched. The page of updates says how to go on.".to_owned(),
            fix: None,
        });
    }
    found
}

fn decide_boot(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    let version = facts.version.clone().unwrap_or_default();
    if let Some(reason) = &facts.went_back {
        let left = facts.left_behind.as_ref().map(|left| format!(" {left}")).unwrap_or_default();
        found.push(Finding {
            code: IssueCode::BootFellBack,
            subject: format!("update-{version}-{}", reason.at.as_second()),
            said: Said::UpdateWentBack { version, why: format!("{}{left}", reason.sentence) },
            hint: "It is not tried again by itself. Wait for a newer version, or choose Try again on the page of updates.".to_owned(),
            fix: None,
        });
    } else if let Some(fallback) = &facts.fallback {
        let words: String = fallback.reason.chars().filter(|c| !c.is_control()).take(400).collect();
        found.push(Finding {
            code: IssueCode::BootFellBack,
            subject: format!("fallback-{}", fallback.at_boot),
            said: Said::BootFellBack { why: format!("Slot {}: {words}", fallback.from_slot) },
            hint: "Install the update again, or a newer one. Dismiss this issue once you know about it.".to_owned(),
            fix: None,
        });
    }
    found
}

#[async_trait]
impl Check for UpdateIssues {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::ChannelStale, IssueCode::UpdateFailed]
    }

    fn listens(&self) -> &'static [Topic] {
        &[Topic::Updates]
    }

    async fn look(&self) -> Looked {
        Looked::Seen(decide(&self.room.facts(None)))
    }
}

#[async_trait]
impl Check for BootIssues {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::BootFellBack]
    }

    fn listens(&self) -> &'static [Topic] {
        &[Topic::Updates]
    }

    async fn look(&self) -> Looked {
        if !self.room.host.is_appliance() {
            return Looked::NotChecked("This is not the appliance: its system belongs to somebody else.".to_owned());
        }
        let boot = self.room.places.boot.clone();
        match blocking(move || Ok(warden_update_record::read::<Fallback>(&boot)?)).await {
            Ok(fallback) => Looked::Seen(decide_boot(&self.room.facts(fallback))),
            Err(fault) => Looked::NotChecked(format!("The record of the last starts cannot be read: {fault}")),
        }
    }
}

impl UpdateRoom {
    fn facts(&self, fallback: Option<Fallback>) -> Facts {
        let staleness = self.staleness();
        self.with(|known| Facts {
            stale: staleness.map(|refusal| crate::fault::sentence(&refusal.to_string())),
            fault: known.trouble.fault.clone().filter(|_| !known.trouble.passes),
            phase: Some(shown(known.record.phase())),
            version: known.record.attempt().map(|attempt| attempt.entry.version.clone()),
            went_back: match &known.record {
                Record::RolledBack { reason, at, .. } => Some(UpdateFault { code: reason.code.clone(), sentence: reason.sentence.clone(), at: *at }),
                _ => None,
            },
            fallback,
            left_behind: self.left_behind.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use warden_update_record::Slot;

    use super::*;

    fn fault(text: &str) -> UpdateFault {
        UpdateFault { code: "x".into(), sentence: text.into(), at: Timestamp::UNIX_EPOCH }
    }

    fn codes(facts: &Facts) -> Vec<IssueCode> {
        decide(facts).iter().chain(&decide_boot(facts)).map(|finding| finding.code).collect()
    }

    #[test]
    fn a_fall_back_of_an_update_is_one_issue_with_its_reason() {
        let fallback = Some(Fallback { from_slot: Slot::B, reason: "started 3 times".into(), at_boot: "one".into() });
        let facts = Facts { went_back: Some(fault("The console did not answer.")), version: Some("1.4.0".into()), fallback, ..Facts::default() };
        let found = decide_boot(&facts);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].said.to_string().contains("1.4.0") && found[0].said.to_string().contains("The console did not answer."),
            "{}",
            found[0].said
        );
    }

    #[test]
    fn a_fall_back_without_an_update_is_told_too_and_a_second_one_is_another_issue() {
        let of = |boot: &str| Facts { fallback: Some(Fallback { from_slot: Slot::A, reason: "x".into(), at_boot: boot.into() }), ..Facts::default() };
        assert_eq!(codes(&of("one")), [IssueCode::BootFellBack]);
        assert_ne!(decide_boot(&of("one"))[0].subject, decide_boot(&of("two"))[0].subject);
    }

    #[test]
    fn a_box_where_nothing_happened_has_no_issue() {
        assert!(codes(&Facts::default()).is_empty());
        assert_eq!(
            codes(&Facts { stale: Some("X.".into()), fault: Some(fault("Y.")), ..Facts::default() }),
            [IssueCode::ChannelStale, IssueCode::UpdateFailed]
        );
    }
}
