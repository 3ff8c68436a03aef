//! Whether alerts reach their receiver.

use async_trait::async_trait;
use warden_domain::issue::{Check, Finding, Fix, IssueCode, Looked, Said};
use warden_store::{Store, alerts};

/// Fewer tries than this are everyday hiccups.
const TRIES: u32 = 4;

fn decide(waiting: usize, tries: u32, said: Option<&str>) -> Vec<Finding> {
    if waiting == 0 || tries < TRIES {
        return Vec::new();
    }
    let said = match said {
        Some(said) => Said::AlertRefused { waiting, tries, said: said.to_owned() },
        None => Said::AlertNotDelivered { waiting, tries },
    };
    vec![Finding {
        code: IssueCode::AlertNotDelivered,
        subject: "webhook".to_owned(),
        said,
        hint: "Check that the receiver runs and that its address in the alert settings is right.".to_owned(),
        fix: Some(Fix::SendAlerts),
    }]
}

/// Looks at the outbox.
pub(super) struct Deliveries {
    pub(super) store: Store,
}

#[async_trait]
impl Check for Deliveries {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::AlertNotDelivered]
    }

    async fn look(&self) -> Looked {
        match self.store.read(alerts::waiting).await {
            Ok((waiting, tries, said)) => Looked::Seen(decide(waiting, tries, said.as_deref())),
            Err(error) => Looked::NotChecked(format!("The outbox cannot be read: {error}.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_hiccups_is_no_issue_and_one_that_stays_away_is() {
        assert!(decide(1, 2, Some("503")).is_empty());
        assert!(decide(0, 9, None).is_empty());
        let found = decide(2, 4, Some("It answered 503."));
        let said = found[0].said.to_string();
        assert!(said.contains("2 wait") && said.contains("503"), "{said}");
    }
}
