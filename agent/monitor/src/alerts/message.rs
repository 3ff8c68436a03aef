//! What is told: the body of a message, and whether an event is told at all. The body is written once and sent as it stands at every
//! try, so that a receiver can compare them.

use std::sync::Arc;

use serde_json::{Value, json};
use warden_domain::{
    alert::AlertConfig,
    clock,
    ids::DeliveryId,
    issue::{Issue, IssueCode},
};
use warden_store::{
    StoreError,
    alerts::{self, NewAlert},
    rusqlite::Connection,
};

use super::settings;
use crate::issues::memory::Event;

/// Who tells: the box's name now, and the agent's version.
#[derive(Clone)]
pub(crate) struct Teller {
    pub(crate) box_name: Arc<dyn Fn() -> String + Send + Sync>,
    pub(crate) version: &'static str,
}

/// Queues the alert for a beginning or an end, if the settings want it told.
pub(crate) fn tell(db: &Connection, teller: &Teller, event: &Event) -> Result<(), StoreError> {
    let (name, issue) = match event {
        Event::Opened(issue) => ("issue.opened", issue),
        Event::Resolved(issue) => ("issue.resolved", issue),
    };
    if !is_told(&settings::read(db)?, issue.finding.code) {
        return Ok(());
    }
    let id = DeliveryId::random();
    let body = body(&id, name, teller, Some(issue));
    let (issue_id, code) = (Some(issue.id.clone()), Some(issue.finding.code.as_str()));
    alerts::enqueue(db, &NewAlert { id, issue: issue_id, event: name, code, body, made_at: clock::now() })
}

/// Queues a test message.
pub(crate) fn tell_test(db: &Connection, teller: &Teller) -> Result<DeliveryId, StoreError> {
    let id = DeliveryId::random();
    let body = body(&id, "test", teller, None);
    alerts::enqueue(db, &NewAlert { id: id.clone(), issue: None, event: "test", code: None, body, made_at: clock::now() })?;
    Ok(id)
}

/// An alert about alerts that do not arrive would not arrive.
fn is_told(config: &AlertConfig, code: IssueCode) -> bool {
    config.enabled && code != IssueCode::AlertNotDelivered && config.codes.as_ref().is_none_or(|codes| codes.contains(&code))
}

fn body(id: &DeliveryId, event: &str, teller: &Teller, issue: Option<&Issue>) -> String {
    let about = issue.map_or(Value::Null, |issue| {
        json!({
            "id": issue.id.as_str(),
            "code": issue.finding.code.as_str(),
            "severity": issue.finding.code.severity().as_str(),
            "subject": issue.finding.subject,
            "sentence": issue.finding.said.to_string(),
            "hint": issue.finding.hint,
            "first_seen": issue.first_seen.to_string(),
            "resolved_at": issue.resolved_at.map(|at| at.to_string()),
        })
    });
    json!({
        "delivery": id.as_str(),
        "event": event,
        "made_at": clock::now().to_string(),
        "box": (teller.box_name)(),
        "version": teller.version,
        "issue": about,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_chosen_is_told_and_nothing_while_alerts_are_off() {
        let all = AlertConfig { enabled: true, url: "http://x/".into(), codes: None, has_secret: true };
        assert!(is_told(&all, IssueCode::ModelFailed));
        assert!(!is_told(&all, IssueCode::AlertNotDelivered), "it could not arrive");
        let some = AlertConfig { codes: Some(vec![IssueCode::DataDiskFull]), ..all.clone() };
        assert!(is_told(&some, IssueCode::DataDiskFull) && !is_told(&some, IssueCode::ModelFailed));
        assert!(!is_told(&AlertConfig { enabled: false, ..all }, IssueCode::ModelFailed));
    }
}
