//! Whether the certificate of the encrypted port is about to end although it should have been made anew.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use warden_domain::{
    clock,
    front::Front,
    issue::{Check, Finding, IssueCode, Looked, Said},
};

/// A new one is made well before this; less means that making it fails.
const DAYS: i64 = 7;

fn decide(valid_until: Timestamp, now: Timestamp) -> Vec<Finding> {
    let left = valid_until.as_second() - now.as_second();
    if left > DAYS * 86_400 {
        return Vec::new();
    }
    let said = if left <= 0 { Said::CertificateEnded {} } else { Said::CertificateEnding { days: left / 86_400 } };
    vec![Finding {
        code: IssueCode::CertificateEnding,
        subject: "front".to_owned(),
        said,
        hint: "Check that the clock is right, then restart the appliance: a new certificate is made at the start.".to_owned(),
        fix: None,
    }]
}

/// Asks the front door.
pub(super) struct Certificate {
    pub(super) front: Arc<dyn Front>,
}

#[async_trait]
impl Check for Certificate {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::CertificateEnding]
    }

    async fn look(&self) -> Looked {
        match self.front.state().certificates {
            None => Looked::NotChecked("This agent speaks plain HTTP only: it has no certificate.".to_owned()),
            Some(certificates) => Looked::Seen(decide(certificates.valid_until, clock::now())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_was_not_made_anew_in_time_is_told_before_browsers_refuse_it() {
        let now = Timestamp::from_second(1_000_000_000).unwrap();
        let in_days = |days: i64| Timestamp::from_second(1_000_000_000 + days * 86_400).unwrap();
        assert!(decide(in_days(30), now).is_empty());
        assert!(decide(in_days(3), now)[0].said.to_string().contains("ends in 3 days"));
        assert!(decide(in_days(-1), now)[0].said.to_string().contains("has ended"));
    }
}
