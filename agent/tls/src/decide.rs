//! When a new certificate is made. Pure.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::Wanted;

/// How long a certificate is valid. Browsers take at most 825 days from an authority that their user added.
pub(crate) const LIFE: Duration = Duration::from_secs(397 * 86_400);
/// How long before its making it is valid already. A whole year: a box whose clock ran ahead when it made its certificate must not shut out
/// clients with the true time once an address changes. With the life after it, still less than 825 days.
pub(crate) const HEAD_START: Duration = Duration::from_secs(365 * 86_400);
/// It is replaced that long before its end.
const BEFORE_END: Duration = Duration::from_secs(60 * 86_400);

/// What is known of the certificate in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafFacts {
    /// Names it is for.
    pub names: BTreeSet<String>,
    /// Addresses it is for.
    pub addresses: BTreeSet<IpAddr>,
    /// Fingerprint of the authority that signed it.
    pub authority: String,
    /// When it was made, by the clock of that moment.
    pub issued_at: Timestamp,
    /// First moment of its validity.
    pub not_before: Timestamp,
    /// Last moment.
    pub not_after: Timestamp,
}

/// Why a new certificate is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is none.
    None,
    /// Another authority signed it.
    Authority,
    /// The names are others.
    Names,
    /// An address is missing.
    Addresses,
    /// It ends soon, or has ended.
    Ending,
    /// By the clock of now it begins in the future: the clock was set back.
    Clock,
}

/// Whether a new certificate is due, and why. Addresses that went away are no reason: cables are pulled and plugged in again, and the
/// next certificate leaves them out anyway.
#[must_use]
pub fn needs_reissue(leaf: Option<&LeafFacts>, wanted: &Wanted, authority: &str, now: Timestamp) -> Option<Reason> {
    let Some(leaf) = leaf else { return Some(Reason::None) };
    let left = leaf.not_after.duration_since(now);
    if leaf.authority != authority {
        Some(Reason::Authority)
    } else if leaf.names != wanted.names {
        Some(Reason::Names)
    } else if !wanted.addresses.is_subset(&leaf.addresses) {
        Some(Reason::Addresses)
    } else if left < jiff::SignedDuration::try_from(BEFORE_END).unwrap_or_default() {
        Some(Reason::Ending)
    } else if leaf.not_before > now {
        Some(Reason::Clock)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn now() -> Timestamp {
        "2026-05-01T12:00:00Z".parse().unwrap()
    }

    fn wanted(addresses: &[&str]) -> Wanted {
        let addresses: Vec<IpAddr> = addresses.iter().map(|a| a.parse().unwrap()).collect();
        Wanted::new("warden", [], &addresses)
    }

    fn leaf(wanted: &Wanted) -> LeafFacts {
        LeafFacts {
            names: wanted.names.clone(),
            addresses: wanted.addresses.clone(),
            authority: "A".into(),
            issued_at: now(),
            not_before: now() - HEAD_START,
            not_after: now() + LIFE,
        }
    }

    #[test]
    fn a_new_name_or_address_makes_a_new_certificate_at_once() {
        let old = leaf(&wanted(&["10.0.0.7"]));
        assert_eq!(needs_reissue(Some(&old), &wanted(&["10.0.0.7"]), "A", now()), None);
        assert_eq!(needs_reissue(Some(&old), &wanted(&["10.0.0.8"]), "A", now()), Some(Reason::Addresses));
        assert_eq!(needs_reissue(Some(&old), &Wanted::new("attic", [], &["10.0.0.7".parse().unwrap()]), "A", now()), Some(Reason::Names));
        assert_eq!(needs_reissue(None, &wanted(&[]), "A", now()), Some(Reason::None));
    }

    #[test]
    fn a_pulled_cable_changes_nothing() {
        assert_eq!(needs_reissue(Some(&leaf(&wanted(&["10.0.0.7"]))), &wanted(&[]), "A", now()), None);
    }

    #[test]
    fn a_certificate_of_another_authority_or_clock_is_replaced() {
        let here = wanted(&[]);
        let old = leaf(&here);
        assert_eq!(needs_reissue(Some(&old), &here, "B", now()), Some(Reason::Authority));
        assert_eq!(needs_reissue(Some(&old), &here, "A", now() - HEAD_START - Duration::from_secs(86_400)), Some(Reason::Clock));
        assert_eq!(needs_reissue(Some(&old), &here, "A", now() + LIFE - Duration::from_secs(59 * 86_400)), Some(Reason::Ending));
        assert_eq!(needs_reissue(Some(&old), &here, "A", now() + LIFE + LIFE), Some(Reason::Ending));
    }

    #[test]
    fn a_certificate_made_while_the_clock_ran_ahead_is_valid_for_clients_with_the_true_time() {
        let made_ahead = leaf(&wanted(&[]));
        let true_time = now() - Duration::from_secs(300 * 86_400);
        assert!(made_ahead.not_before < true_time);
        let whole = made_ahead.not_after.duration_since(made_ahead.not_before);
        assert!(whole < jiff::SignedDuration::from_hours(825 * 24), "browsers refuse longer ones");
    }

    proptest! {
        #[test]
        fn what_was_just_made_for_the_present_is_never_due(last in proptest::collection::vec(1u8..255, 0..8), host in "[a-z]{1,12}") {
            let addresses: Vec<IpAddr> = last.iter().map(|n| IpAddr::from([10, 1, 1, *n])).collect();
            let here = Wanted::new(&host, [], &addresses);
            prop_assert_eq!(needs_reissue(Some(&leaf(&here)), &here, "A", now()), None);
        }
    }
}
