//! One section per row of the attack table of the update design, named after the attack.

#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up should stop")]

mod support;

use serde_json::{Value, json};
use support::*;
use warden_trust::{Digest, Direction, Document, Freshness, Metadata, PartCheck, RELEASE_MAX, ROOT_CHAIN_MAX, Refusal, Role, Trusted, Way};

#[test]
fn nothing_is_wrong_and_the_set_is_taken() {
    let accepted = over_the_air(&fresh_box(), &set(&release(1, "1.1.0"), &[11])).unwrap();
    assert!(matches!(accepted.freshness, Freshness::Fresh { .. }));
    accepted.automatic().unwrap();
    let (entry, direction) = accepted.admit(&Digest::of(PAYLOAD), &installed("1.0.0")).unwrap();
    assert_eq!((entry.version.as_str(), direction), ("1.1.0", Direction::Newer));
    assert!(over_the_air(&accepted.trusted, &set(&release(1, "1.1.0"), &[11])).is_ok(), "the same set again changes nothing");
    let kept: Trusted = serde_json::from_str(&serde_json::to_string(&accepted.trusted).unwrap()).unwrap();
    assert_eq!(kept, accepted.trusted, "the state survives being stored");
}

// Arbitrary install, wrong key, threshold not met, duplicate signatures

#[test]
fn arbitrary_install_with_a_strangers_key() {
    let refused = over_the_air(&fresh_box(), &set(&release(1, "1.1.0"), &[99])).unwrap_err();
    assert_eq!(refused, Refusal::NotSignedByUs { document: Document::Release, role: Role::Release });
}

#[test]
fn arbitrary_install_without_any_signature() {
    assert!(matches!(over_the_air(&fresh_box(), &set(&release(1, "1.1.0"), &[])), Err(Refusal::NotSignedByUs { .. })));
}

#[test]
fn wrong_key_of_another_role_cannot_sign_a_release() {
    for seed in [21, 1] {
        assert!(matches!(over_the_air(&fresh_box(), &set(&release(1, "1.1.0"), &[seed])), Err(Refusal::NotSignedByUs { .. })));
    }
}

#[test]
fn a_byte_changed_after_signing() {
    let mut metadata = set(&release(1, "1.1.0"), &[11]);
    let text = String::from_utf8(metadata.release).unwrap().replace("\"1.1.0\"", "\"1.1.9\"");
    metadata.release = text.into_bytes();
    assert!(matches!(over_the_air(&fresh_box(), &metadata), Err(Refusal::NotPinned { .. })));
    metadata.timestamp = stamp(1, 1, &metadata.release, |_| ());
    assert_eq!(over_the_air(&fresh_box(), &metadata).unwrap_err(), Refusal::BadSignature { document: Document::Release, key_id: id(11) });
}

#[test]
fn threshold_not_met_by_the_root_keys() {
    let one = Metadata { roots: vec![sign(&root(2), &[1])], ..set(&release(1, "1.1.0"), &[11]) };
    let refused = over_the_air(&fresh_box(), &one).unwrap_err();
    assert_eq!(refused, Refusal::TooFewSignatures { document: Document::Root, role: Role::Root, valid: 1, needed: 2 });
    assert!(matches!(Trusted::begin(&sign(&root(1), &[1]), &identity(), today()), Err(Refusal::TooFewSignatures { .. })));
}

#[test]
fn duplicate_signatures_of_one_key_do_not_make_a_threshold() {
    let mut file: Value = serde_json::from_slice(&sign(&root(2), &[1])).unwrap();
    let twice = file["signatures"][0].clone();
    file["signatures"].as_array_mut().unwrap().push(twice);
    let metadata = Metadata { roots: vec![warden_trust::canonical(&file).unwrap()], ..set(&release(1, "1.1.0"), &[11]) };
    assert_eq!(over_the_air(&fresh_box(), &metadata).unwrap_err(), Refusal::DuplicateSignature { document: Document::Root, key_id: id(1) });
}

#[test]
fn duplicate_keys_or_key_ids_in_a_root_are_a_contradiction() {
    let mut twice = root(2);
    let first = twice["keys"][0].clone();
    twice["keys"].as_array_mut().unwrap().push(first);
    let mut two_roles = root(2);
    two_roles["roles"]["release"]["key_ids"] = json!([id(21)]);
    let mut renamed = root(2);
    renamed["keys"][0]["key_id"] = json!(id(99));
    let mut in_role_twice = root(2);
    in_role_twice["roles"]["root"]["key_ids"] = json!([id(1), id(1), id(2)]);
    let mut nobody = root(2);
    nobody["roles"]["release"]["threshold"] = json!(0);
    for bad in [twice, two_roles, renamed, in_role_twice, nobody] {
        let metadata = Metadata { roots: vec![sign(&bad, &[1, 2])], ..set(&release(1, "1.1.0"), &[11]) };
        assert!(matches!(over_the_air(&fresh_box(), &metadata), Err(Refusal::Contradiction { document: Document::Root, .. })), "{bad}");
    }
}

#[test]
fn a_member_written_twice_is_refused() {
    let text = String::from_utf8(sign(&release(1, "1.1.0"), &[11])).unwrap();
    let bytes = text.replacen("\"channel\":\"stable\"", "\"channel\":\"stable\",\"channel\":\"stable\"", 1).into_bytes();
    let metadata = Metadata { roots: Vec::new(), timestamp: stamp(1, 1, &bytes, |_| ()), release: bytes };
    assert!(matches!(over_the_air(&fresh_box(), &metadata), Err(Refusal::DuplicateMember { .. })));
}

#[test]
fn unknown_members_change_no_decision() {
    let mut more = release(1, "1.1.0");
    more["install_without_asking"] = json!(true);
    more["entries"][0]["skip_checks"] = json!([1, 2]);
    assert!(over_the_air(&fresh_box(), &set(&more, &[11])).is_ok());
    more["spec"] = json!(2);
    assert!(matches!(over_the_air(&fresh_box(), &set(&more, &[11])), Err(Refusal::UnknownSpec { found: 2, .. })));
}

// Rollback of metadata or of a target

#[test]
fn rollback_of_metadata() {
    let refused = over_the_air(&box_at(7, "1.1.0"), &set(&release(6, "1.2.0"), &[11])).unwrap_err();
    assert!(matches!(refused, Refusal::OlderThanSeen { document: Document::Timestamp, found: 6, seen: 7 }));
    let bytes = sign(&release(6, "1.2.0"), &[11]);
    let newer_stamp = Metadata { roots: Vec::new(), timestamp: stamp(9, 6, &bytes, |_| ()), release: bytes };
    let refused = over_the_air(&box_at(7, "1.1.0"), &newer_stamp).unwrap_err();
    assert_eq!(refused, Refusal::OlderThanSeen { document: Document::Release, found: 6, seen: 7 });
}

#[test]
fn rollback_is_refused_for_being_older_even_when_everything_is_expired() {
    let late = days_later(3650);
    let refused = box_at(7, "1.1.0").accept(&set(&release(6, "1.2.0"), &[11]), Way::OverTheAir, &identity(), &late).unwrap_err();
    assert!(matches!(refused, Refusal::OlderThanSeen { .. }), "{refused}");
}

#[test]
fn rollback_by_another_content_under_a_seen_version() {
    let refused = over_the_air(&box_at(7, "1.1.0"), &set(&release(7, "1.2.0"), &[11])).unwrap_err();
    assert_eq!(refused, Refusal::SameVersionOtherContent { document: Document::Release, version: 7 });
}

#[test]
fn rollback_of_a_target_below_the_floor() {
    let mut high = release(7, "1.5.0");
    high["floor"] = json!("1.4.0");
    let seen = over_the_air(&fresh_box(), &set(&high, &[11])).unwrap().trusted;
    let low = over_the_air(&seen, &set(&release(8, "1.3.0"), &[11])).unwrap();
    let refused = low.admit(&Digest::of(PAYLOAD), &installed("1.5.0")).unwrap_err();
    assert_eq!(refused, Refusal::BelowFloor { found: "1.3.0".parse().unwrap(), floor: "1.4.0".parse().unwrap() });
    assert!(low.best_os(&installed("1.5.0")).is_none(), "a later release cannot lower the floor");
}

#[test]
fn an_older_target_above_the_floor_is_named_as_older() {
    let accepted = over_the_air(&fresh_box(), &set(&release(8, "1.3.0"), &[11])).unwrap();
    assert_eq!(accepted.best_os(&installed("1.5.0")).unwrap().1, Direction::Older);
}

#[test]
fn a_target_that_cannot_read_this_boxs_data() {
    let accepted = over_the_air(&fresh_box(), &set(&release(1, "1.3.0"), &[11])).unwrap();
    let mut box_ = installed("1.5.0");
    box_.data_needs = 4;
    assert!(matches!(accepted.admit(&Digest::of(PAYLOAD), &box_), Err(Refusal::DataTooNew { reads: 3, needs: 4, .. })));
}

#[test]
fn demands_that_this_box_does_not_meet() {
    let demand = |name: &str, value: &str| {
        let mut content = release(1, "1.3.0");
        content["entries"][0]["requires"][name] = json!(value);
        over_the_air(&fresh_box(), &set(&content, &[11])).unwrap().admit(&Digest::of(PAYLOAD), &installed("1.2.0")).map(|_| ())
    };
    assert!(matches!(demand("min_from", "1.2.1"), Err(Refusal::FromTooOld { .. })));
    assert!(matches!(demand("agent", "1.3.0"), Err(Refusal::NeedsNewerAgent { .. })));
    assert!(matches!(demand("driver", "570.1"), Err(Refusal::NeedsNewerDriver { .. })));
    assert!(demand("driver", "550.90").is_ok());
}

// Freeze

#[test]
fn freeze_stops_automatic_updates_and_breaks_nothing() {
    let metadata = set(&release(7, "1.1.0"), &[11]);
    let late = days_later(30);
    let accepted = box_at(7, "1.1.0").accept(&metadata, Way::OverTheAir, &identity(), &late).unwrap();
    assert!(matches!(accepted.automatic(), Err(Refusal::Stale { .. })));
    assert!(accepted.admit(&Digest::of(PAYLOAD), &installed("1.0.0")).is_ok(), "a person may still install");
}

// Mix-and-match, wrong product or channel

#[test]
fn mix_and_match_of_two_releases() {
    let metadata = Metadata { timestamp: set(&release(2, "1.2.0"), &[11]).timestamp, ..set(&release(1, "1.1.0"), &[11]) };
    assert!(matches!(over_the_air(&fresh_box(), &metadata), Err(Refusal::NotPinned { .. })));
    let bytes = sign(&release(1, "1.1.0"), &[11]);
    let lies = Metadata { roots: Vec::new(), timestamp: stamp(2, 2, &bytes, |_| ()), release: bytes };
    assert!(matches!(over_the_air(&fresh_box(), &lies), Err(Refusal::NotPinned { .. })), "the version in the pin");
}

#[test]
fn mix_and_match_of_a_target_from_elsewhere() {
    let accepted = over_the_air(&fresh_box(), &set(&release(1, "1.1.0"), &[11])).unwrap();
    assert!(matches!(accepted.admit(&Digest::of(b"another"), &installed("1.0.0")), Err(Refusal::NotListed { .. })));
}

#[test]
fn a_file_of_another_kind_in_the_place_of_a_release() {
    let wrong = sign(&json!({"type": "timestamp", "spec": 1}), &[11]);
    let metadata = Metadata { roots: Vec::new(), timestamp: stamp(1, 1, &wrong, |_| ()), release: wrong };
    assert!(matches!(over_the_air(&fresh_box(), &metadata), Err(Refusal::WrongDocument { .. })));
}

#[test]
fn wrong_product() {
    let mut other = release(1, "1.1.0");
    other["compatible"] = json!("toaster");
    assert!(matches!(over_the_air(&fresh_box(), &set(&other, &[11])), Err(Refusal::OtherProduct { document: Document::Release, .. })));
    let bytes = sign(&release(1, "1.1.0"), &[11]);
    let stamp = stamp(1, 1, &bytes, |s| s["compatible"] = json!("toaster"));
    let metadata = Metadata { roots: Vec::new(), timestamp: stamp, release: bytes };
    assert!(matches!(over_the_air(&fresh_box(), &metadata), Err(Refusal::OtherProduct { document: Document::Timestamp, .. })));
    let mut foreign = root(2);
    foreign["compatible"] = json!("toaster");
    let metadata = Metadata { roots: vec![sign(&foreign, &[1, 2])], ..set(&release(1, "1.1.0"), &[11]) };
    assert!(matches!(over_the_air(&fresh_box(), &metadata), Err(Refusal::OtherProduct { document: Document::Root, .. })));
}

#[test]
fn wrong_channel() {
    let mut beta = release(1, "1.1.0");
    beta["channel"] = json!("beta");
    assert!(matches!(over_the_air(&fresh_box(), &set(&beta, &[11])), Err(Refusal::OtherChannel { document: Document::Release, .. })));
    let mut follower = identity();
    follower.channel = "beta".to_owned();
    let refused = fresh_box().accept(&set(&release(1, "1.1.0"), &[11]), Way::Offline, &follower, &now()).unwrap_err();
    assert!(matches!(refused, Refusal::OtherChannel { document: Document::Timestamp, .. }));
}

#[test]
fn development_keys_on_a_production_box() {
    let mut production = identity();
    production.development = false;
    assert_eq!(Trusted::begin(&sign(&root(1), &[1, 2]), &production, today()).unwrap_err(), Refusal::DevelopmentRoot);
}

// Endless or oversized data, slow drip (the drip itself: `target.rs`)

#[test]
fn oversized_metadata_is_not_even_parsed() {
    let metadata = Metadata { timestamp: vec![b'['; 20_000], ..set(&release(1, "1.1.0"), &[11]) };
    assert!(matches!(over_the_air(&fresh_box(), &metadata), Err(Refusal::TooLarge { document: Document::Timestamp, .. })));
    let huge = vec![b' '; RELEASE_MAX + 1];
    let metadata = Metadata { roots: Vec::new(), timestamp: stamp(1, 1, &huge, |_| ()), release: huge };
    assert!(matches!(over_the_air(&fresh_box(), &metadata), Err(Refusal::TooLarge { document: Document::Release, .. })));
    let metadata = Metadata { roots: vec![Vec::new(); ROOT_CHAIN_MAX + 1], ..Metadata::default() };
    assert!(matches!(over_the_air(&fresh_box(), &metadata), Err(Refusal::RootChainTooLong { .. })));
}

#[test]
fn endless_data_after_a_target() {
    let accepted = over_the_air(&fresh_box(), &set(&release(1, "1.1.0"), &[11])).unwrap();
    let (entry, _) = accepted.admit(&Digest::of(PAYLOAD), &installed("1.0.0")).unwrap();
    let mut check = PartCheck::new(entry);
    check.feed(PAYLOAD).unwrap();
    assert!(matches!(check.feed(&[0]), Err(Refusal::TooLong { .. })));
    check.finish().unwrap();
}

// Fast-forward after key theft

#[test]
fn fast_forward_after_key_theft_is_undone_by_a_new_root() {
    let near_the_end = 9_007_199_254_740_991;
    let stuck = box_at(near_the_end, "1.1.0");
    assert!(over_the_air(&stuck, &set(&release(8, "1.2.0"), &[12])).is_err(), "without a new root the box is stuck");
    let mut next = root_of(2, &[1, 2, 3], &[12, 13], &[22]);
    next["roles"]["release"]["from_version"] = json!(8);
    next["roles"]["timestamp"]["from_version"] = json!(1);
    let bytes = sign(&release(8, "1.2.0"), &[12]);
    let timestamp = restamp(&stamp(1, 8, &bytes, |_| ()), 22);
    let rescue = Metadata { roots: vec![sign(&next, &[1, 3])], timestamp, release: bytes };
    let freed = over_the_air(&stuck, &rescue).unwrap().trusted;
    assert_eq!(freed.seen["stable"].release, 8);
    let mut walled = stuck.clone();
    walled.os_floor = "999.0.0".parse().unwrap();
    let freed = over_the_air(&walled, &rescue).unwrap();
    assert!(freed.best_os(&installed("1.1.0")).is_some(), "nor does a floor that the thief raised keep the box from updates");
    let old = sign(&release(7, "1.0.5"), &[12]);
    let replay = Metadata { roots: Vec::new(), timestamp: restamp(&stamp(2, 7, &old, |_| ()), 22), release: old };
    let fresh_again = stuck.walk(&[sign(&next, &[1, 3])], &identity()).unwrap();
    assert!(matches!(over_the_air(&fresh_again, &replay), Err(Refusal::OlderThanSeen { seen: 8, .. })), "from_version holds");
}

#[test]
fn a_new_root_that_only_adds_keys_forgets_nothing() {
    let wider = root_of(2, &[1, 2, 3], &[11, 12, 13], &[21]);
    let walked = box_at(7, "1.1.0").walk(&[sign(&wider, &[1, 2])], &identity()).unwrap();
    assert_eq!(walked.seen["stable"].release, 7);
}

#[test]
fn an_ordinary_rotation_opens_no_way_back_to_old_releases() {
    let rotated = root_of(2, &[1, 2, 3], &[12, 13], &[22]);
    let walked = box_at(7, "1.1.0").walk(&[sign(&rotated, &[1, 2])], &identity()).unwrap();
    assert_eq!(walked.seen["stable"].release, 7);
    let bytes = sign(&release(6, "1.0.9"), &[12]);
    let timestamp = restamp(&stamp(9, 6, &bytes, |_| ()), 22);
    let replay = Metadata { roots: Vec::new(), timestamp, release: bytes };
    assert!(matches!(offline(&walked, &replay), Err(Refusal::OlderThanSeen { seen: 7, .. })));
}

// Key compromise

#[test]
fn key_compromise_is_answered_by_withdrawing_the_signer() {
    let mut warning = release(2, "1.2.0");
    warning["revoked"]["key_ids"] = json!([id(11)]);
    let warned = over_the_air(&fresh_box(), &set(&warning, &[12])).unwrap().trusted;
    let refused = over_the_air(&warned, &set(&release(3, "6.6.6"), &[11])).unwrap_err();
    assert_eq!(refused, Refusal::RevokedSigner { document: Document::Release, key_id: id(11) });
    assert!(over_the_air(&warned, &set(&release(3, "1.3.0"), &[11, 12])).is_ok(), "the other key still counts");
    assert!(matches!(over_the_air(&fresh_box(), &set(&warning, &[11])), Err(Refusal::RevokedSigner { .. })), "nobody vouches for himself");
}

#[test]
fn key_compromise_of_the_timestamp_key_named_in_the_same_set() {
    let mut warning = release(2, "1.2.0");
    warning["revoked"]["key_ids"] = json!([id(21)]);
    let refused = over_the_air(&fresh_box(), &set(&warning, &[12])).unwrap_err();
    assert_eq!(refused, Refusal::RevokedSigner { document: Document::Timestamp, key_id: id(21) });
}

#[test]
fn a_release_cannot_withdraw_root_keys() {
    let mut coup = release(2, "1.2.0");
    coup["revoked"]["key_ids"] = json!([id(1), id(2), id(3)]);
    let after = over_the_air(&fresh_box(), &set(&coup, &[11])).unwrap().trusted;
    assert!(after.walk(&[sign(&root(2), &[1, 2])], &identity()).is_ok());
}

#[test]
fn a_withdrawn_target_stays_withdrawn() {
    let mut warning = release(2, "1.2.0");
    warning["revoked"]["digests"] = json!([Digest::of(PAYLOAD)]);
    let warned = over_the_air(&fresh_box(), &set(&warning, &[11])).unwrap();
    assert!(matches!(warned.admit(&Digest::of(PAYLOAD), &installed("1.0.0")), Err(Refusal::RevokedTarget { .. })));
    let later = over_the_air(&warned.trusted, &set(&release(3, "1.3.0"), &[11])).unwrap();
    assert!(matches!(later.admit(&Digest::of(PAYLOAD), &installed("1.0.0")), Err(Refusal::RevokedTarget { .. })));
}

#[test]
fn a_root_rotated_twice_is_reached_by_an_old_box() {
    let two = sign(&root_of(2, &[2, 3, 4], &[11, 12], &[21]), &[2, 3]);
    let three = sign(&root_of(3, &[3, 4, 5], &[13, 14], &[22]), &[3, 4]);
    let bytes = sign(&release(9, "1.9.0"), &[13]);
    let timestamp = restamp(&stamp(1, 9, &bytes, |_| ()), 22);
    let chain = vec![sign(&root(1), &[1, 2]), two, three];
    let accepted = offline(&box_at(7, "1.1.0"), &Metadata { roots: chain.clone(), timestamp, release: bytes }).unwrap();
    assert_eq!(accepted.trusted.root.version, 3);
    assert!(matches!(fresh_box().walk(&chain[2..], &identity()), Err(Refusal::RootGap { have: 1, found: 3 })));
    let by_new_keys_only = sign(&root_of(2, &[7, 8, 9], &[11], &[21]), &[7, 8]);
    assert!(matches!(fresh_box().walk(&[by_new_keys_only], &identity()), Err(Refusal::NotSignedByUs { .. })));
    let by_old_keys_only = sign(&root_of(2, &[7, 8, 9], &[11], &[21]), &[1, 2]);
    assert!(matches!(fresh_box().walk(&[by_old_keys_only], &identity()), Err(Refusal::NotSignedByUs { .. })));
    let fork = sign(&root_of(1, &[1, 2, 4], &[11], &[21]), &[1, 2]);
    assert!(matches!(fresh_box().walk(&[fork], &identity()), Err(Refusal::RootForked { version: 1 })));
}

// Replay of an old offline bundle

#[test]
fn replay_of_an_old_offline_bundle() {
    let refused = offline(&box_at(7, "1.1.0"), &set(&release(6, "1.0.9"), &[11])).unwrap_err();
    assert_eq!(refused, Refusal::OlderThanSeen { document: Document::Release, found: 6, seen: 7 });
}

#[test]
fn an_offline_bundle_cut_before_the_last_refresh_of_the_channel_is_no_replay() {
    let bytes = sign(&release(7, "1.1.0"), &[11]);
    let refreshed = Metadata { roots: Vec::new(), timestamp: stamp(50, 7, &bytes, |_| ()), release: bytes };
    let seen = over_the_air(&fresh_box(), &refreshed).unwrap().trusted;
    assert!(offline(&seen, &set(&release(7, "1.1.0"), &[11])).is_ok());
}

// Clock wrong

#[test]
fn clock_wrong_1990_and_2050_offline_installs() {
    for (wall, confirmed) in [("1990-01-01T00:00:00Z", false), ("2050-01-01T00:00:00Z", false), ("1990-01-01T00:00:00Z", true)] {
        let taken = fresh_box().accept(&set(&release(1, "1.1.0"), &[11]), Way::Offline, &identity(), &clock(wall, confirmed));
        assert!(taken.is_ok(), "{wall}: {}", taken.unwrap_err());
    }
}

#[test]
fn clock_wrong_does_not_revive_expired_metadata() {
    let seen = fresh_box().with_time(&days_later(400));
    let refused = seen.accept(&set(&release(1, "1.1.0"), &[11]), Way::Offline, &identity(), &clock("1990-01-01T00:00:00Z", false)).unwrap_err();
    assert!(matches!(refused, Refusal::Expired { document: Document::Release, .. }), "the box has seen a later day: {refused}");
}

#[test]
fn clock_confirmed_and_release_expired() {
    let refused = fresh_box().accept(&set(&release(1, "1.1.0"), &[11]), Way::Offline, &identity(), &days_later(400)).unwrap_err();
    assert!(matches!(refused, Refusal::Expired { document: Document::Release, .. }));
    let long_ago = fresh_box().with_time(&days_later(400)).with_time_by_hand(today());
    assert!(offline(&long_ago, &set(&release(1, "1.1.0"), &[11])).is_ok(), "a person may correct the remembered time");
}

#[test]
fn clock_of_2050_over_the_air_only_looks_stale() {
    let late = clock("2050-01-01T00:00:00Z", false);
    let accepted = fresh_box().accept(&set(&release(1, "1.1.0"), &[11]), Way::OverTheAir, &identity(), &late).unwrap();
    assert!(matches!(accepted.freshness, Freshness::Stale { .. }));
}

#[test]
fn an_expired_root_must_be_replaced_first() {
    let refused = fresh_box().accept(&set(&release(1, "1.1.0"), &[11]), Way::Offline, &identity(), &days_later(3650)).unwrap_err();
    assert!(matches!(refused, Refusal::Expired { document: Document::Root, .. }));
}

// Path tricks, links and bombs: names here, archives in warden-bundle

#[test]
fn path_tricks_in_names_and_sizes() {
    let bend = |change: fn(&mut Value)| {
        let mut content = release(1, "1.1.0");
        change(&mut content["entries"][0]);
        over_the_air(&fresh_box(), &set(&content, &[11])).map(|_| ()).unwrap_err()
    };
    let changes: [fn(&mut Value); 8] = [
        |e| e["name"] = json!("../../etc/passwd"),
        |e| e["name"] = json!(""),
        |e| e["bytes"] = json!(0),
        |e| e["bytes"] = json!(9_007_199_254_740_991_u64),
        |e| e["part_bytes"] = json!(1),
        |e| e["parts"] = json!([]),
        |e| e["parts"] = json!([Digest::of(b"other")]),
        |e| e["version"] = json!("latest"),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        assert!(matches!(bend(change), Refusal::Contradiction { .. }), "change {at}");
    }
    assert!(matches!(bend(|e| e["sha256"] = json!("../x")), Refusal::Unreadable { .. }));
    assert!(matches!(bend(|e| e["bytes"] = json!(-1)), Refusal::Unreadable { .. }));
}

/// A timestamp signed by another key than the usual one.
fn restamp(file: &[u8], seed: u8) -> Vec<u8> {
    let file: Value = serde_json::from_slice(file).unwrap();
    sign(&file["signed"], &[seed])
}
