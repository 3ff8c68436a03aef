//! Refusals are shown to people as they are: each one says what, about what, and what to do.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

mod support;

use proptest::prelude::*;
use support::*;
use warden_trust::{Metadata, Refusal};

#[test]
fn a_refusal_names_cause_subject_and_way_out() {
    let refused = over_the_air(&box_at(7, "1.1.0"), &set(&release(6, "1.2.0"), &[11])).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "timestamp.json is version 6, and this box has already seen 7; an older one may bring back mended faults. Take the newest update."
    );
    assert_eq!(refused.code(), "older_than_seen");
    let refused = over_the_air(&fresh_box(), &Metadata { timestamp: vec![b'['; 20_000], ..Metadata::default() }).unwrap_err();
    assert!(refused.to_string().starts_with("timestamp.json has 19.5 KiB where at most 16.0 KiB are allowed"), "{refused}");
    let driver = Refusal::NeedsNewerDriver { subject: "engine vllm 0.9".to_owned(), needs: "570.1".parse().unwrap(), have: None };
    assert!(driver.to_string().contains("this box has none."), "{driver}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_set_with_any_byte_changed_is_refused(which in 0_usize..2, at in 0_usize..10_000, flip in 1_u8..=255) {
        let mut metadata = set(&release(1, "1.1.0"), &[11]);
        let file = if which == 0 { &mut metadata.timestamp } else { &mut metadata.release };
        let at = at % file.len();
        file[at] ^= flip;
        prop_assert!(over_the_air(&fresh_box(), &metadata).is_err());
    }

    #[test]
    fn a_set_cut_anywhere_is_refused(which in 0_usize..2, at in 0_usize..10_000) {
        let mut metadata = set(&release(1, "1.1.0"), &[11]);
        let file = if which == 0 { &mut metadata.timestamp } else { &mut metadata.release };
        file.truncate(at % file.len());
        prop_assert!(over_the_air(&fresh_box(), &metadata).is_err());
    }
}
