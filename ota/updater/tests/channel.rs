//! Asking a channel and fetching from it: a real release, a real server, its faults, and what is left on the disk.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set itself up should stop")]

mod support;

use std::fs;
use std::time::{Duration, Instant};

use support::server::{Fault, Server};
use support::{Bench, Publisher, bytes, image, quick, sha256};
use warden_domain::units::Bytes;
use warden_domain::update::{Automatic, UpdatePhase, UpdateSettings, Updates};
use warden_update_record::{Record, Slot};
use warden_updater::Rules;

async fn following(name: &str) -> (Publisher, Server, Bench, support::Run) {
    let publisher = Publisher::new(name);
    publisher.system(1, "1.1.0");
    let server = Server::start(&publisher.path("www")).await;
    let bench = Bench::new(&publisher, false).await;
    let run = bench.start(Slot::A, "one", "1.0.0").await;
    run.follow(&server.address).await;
    (publisher, server, bench, run)
}

#[tokio::test]
async fn a_box_without_rauc_still_checks_fetches_and_verifies() {
    let (_publisher, server, bench, run) = following("dev").await;
    assert_eq!(run.check().await, None);
    let view = run.view().await;
    assert!(view.cannot_install.is_some_and(|why| why.contains("no slots")));
    assert_eq!((view.release, view.offers[0].version.as_str(), view.offers[0].direction), (Some(1), "1.1.0", "newer"));
    assert_eq!(run.install().await, None);
    let content = image("1.1.0");
    assert_eq!(run.wait(UpdatePhase::Verified).await.attempt.unwrap().version, "1.1.0");
    assert_eq!(fs::read(bench.places().files.join("targets").join(sha256(&content))).unwrap(), content);
    assert_eq!(server.ranges(), [None], "fetched once and whole");
    assert_eq!(run.install().await, None);
    assert!(server.ranges().is_empty(), "what is here is not fetched again");
}

#[tokio::test]
async fn a_broken_line_goes_on_from_where_it_broke() {
    let (_publisher, server, bench, run) = following("cut").await;
    run.check().await;
    server.set(Fault::CutAfter(700_000));
    assert_eq!(run.install().await, None, "five pieces make up the whole");
    let ranges = server.ranges();
    assert!(ranges.len() >= 4 && ranges[0].is_none() && ranges[1..].iter().all(Option::is_some), "{ranges:?}");
    assert_eq!(fs::read(bench.places().files.join("targets").join(sha256(&image("1.1.0")))).unwrap(), image("1.1.0"));
}

#[tokio::test]
async fn a_restart_resumes_from_verified_parts_and_never_from_the_files_length() {
    let publisher = Publisher::new("resume");
    // The release tool cuts parts of 4 MiB: four whole ones and a rest.
    let content = bytes("1.1.0", 18 << 20);
    publisher.publish(1, "", &[("os", "lm-warden", "1.1.0", &content, "data_schema = 9")]);
    let server = Server::start(&publisher.path("www")).await;
    let bench = Bench::new(&publisher, false).await;
    let run = bench.start(Slot::A, "one", "1.0.0").await;
    run.follow(&server.address).await;
    run.check().await;
    server.set(Fault::Slow);
    run.room.install(None).await.unwrap();
    run.progress(9 << 20).await;
    // The agent is gone in the middle; what the disk has then is whole parts, a torn one and rubbish of the file system.
    drop(run);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let part = bench.part(&content);
    let mut left = fs::read(&part).unwrap();
    assert!(left.len() >= 8 << 20);
    left.truncate((8 << 20) + 100);
    left.resize(content.len(), 0);
    fs::write(&part, &left).unwrap();
    assert!(matches!(bench.record(), Record::Downloading { .. }));

    server.set(Fault::None);
    server.asked();
    let again = bench.start(Slot::A, "two", "1.0.0").await;
    again.room.start();
    again.wait(UpdatePhase::Verified).await;
    assert_eq!(server.ranges(), [Some(format!("bytes={}-", 8 << 20))]);
    assert_eq!(fs::read(bench.places().files.join("targets").join(sha256(&content))).unwrap(), content);
}

#[tokio::test]
async fn if_range_names_the_version_of_the_file_that_was_begun() {
    let (_publisher, server, _bench, run) = following("tag").await;
    run.check().await;
    server.set(Fault::CutAfter(2_000_000));
    run.install().await;
    let asked: Vec<_> = server.asked().into_iter().filter(|asked| asked.path.starts_with("/targets/")).collect();
    assert_eq!((asked[0].if_range.as_deref(), asked[1].if_range.as_deref()), (None, Some("\"one\"")));
}

#[tokio::test]
async fn a_server_without_ranges_costs_bytes_and_no_update() {
    let (_publisher, server, bench, run) = following("noranges").await;
    run.check().await;
    server.set(Fault::CutAfter(2_000_000));
    server.asked();
    let task = run.room.install(None).await.unwrap();
    server.was_asked("/targets/").await;
    server.set(Fault::NoRanges);
    assert_eq!(run.ended(&task).await, None);
    let ranges = server.ranges();
    assert!(ranges.len() >= 2 && ranges.last().unwrap().is_some(), "what was begun is asked for from where it ended: {ranges:?}");
    assert_eq!(fs::read(bench.places().files.join("targets").join(sha256(&image("1.1.0")))).unwrap(), image("1.1.0"));
}

#[tokio::test]
async fn each_bad_server_is_refused_with_a_sentence_of_its_own_and_nothing_is_called_whole() {
    let cases = [
        (Fault::Flip(1_500_000), "does not match its checksum", UpdatePhase::Idle),
        (Fault::Endless, "goes on after its", UpdatePhase::Downloading),
        (Fault::Drip, "too slowly to end", UpdatePhase::Downloading),
        (Fault::Busy, "answers 503", UpdatePhase::Downloading),
        (Fault::Moved, "follows no redirects", UpdatePhase::Downloading),
        (Fault::CutAfter(100), "broke off", UpdatePhase::Downloading),
    ];
    for (fault, words, phase) in cases {
        let (_publisher, server, bench, run) = following("bad").await;
        run.check().await;
        server.set(fault);
        let failure = run.install().await.unwrap_or_else(|| panic!("{fault:?} was taken"));
        assert!(failure.contains(words), "{fault:?}: {failure}");
        let view = run.view().await;
        assert_eq!(view.phase, phase, "{fault:?}");
        assert_eq!(view.fault.unwrap().sentence, failure, "{fault:?}");
        assert!(!bench.places().files.join("targets").join(sha256(&image("1.1.0"))).exists(), "{fault:?}");
    }
}

#[tokio::test]
async fn a_cancelled_transfer_ends_and_keeps_what_is_good_for_the_next_try() {
    let (_publisher, server, bench, run) = following("cancel").await;
    run.check().await;
    server.set(Fault::Slow);
    let task = run.room.install(None).await.unwrap();
    run.progress(0).await;
    let begun = Instant::now();
    run.room.cancel().await.unwrap();
    assert!(run.ended(&task).await.unwrap().contains("cancelled"));
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(bench.record(), Record::Idle);
    let view = run.view().await;
    assert_eq!((view.history[0].outcome.as_str(), view.fault), ("cancelled", None));
}

#[tokio::test]
async fn a_limit_is_kept_and_is_no_slowness_of_the_server() {
    let (_publisher, server, bench, _) = following("limit").await;
    let run = bench.start_with(Slot::A, "one", "1.0.0", Rules { least: 4 << 20, window: Duration::from_millis(600), ..quick() }).await;
    let settings = UpdateSettings { channel_url: Some(server.address.clone()), rate_limit: Some(Bytes(1 << 20)), ..UpdateSettings::default() };
    run.room.configure(settings).await.unwrap();
    run.check().await;
    let begun = Instant::now();
    assert_eq!(run.install().await, None);
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(2500) && took < Duration::from_secs(20), "3 MiB at 1 MiB/s took {took:?}");
}

#[tokio::test]
async fn a_release_of_yesterday_is_refused_after_a_restart_too() {
    let (publisher, server, bench, run) = following("replay").await;
    run.check().await;
    let (old_timestamp, old_release) =
        (fs::read(publisher.path("www/metadata/timestamp.json")).unwrap(), publisher.path("www/metadata/release.1.json"));
    assert!(old_release.exists());
    publisher.system(2, "1.2.0");
    assert_eq!(run.check().await, None);
    fs::write(publisher.path("www/metadata/timestamp.json"), old_timestamp).unwrap();
    for run in [run, bench.start(Slot::A, "two", "1.0.0").await] {
        let failure = run.check().await.unwrap();
        assert!(failure.contains("has already seen"), "{failure}");
        let view = run.view().await;
        assert_eq!(view.check_fault.unwrap().code, "older_than_seen");
        assert_eq!((view.release, view.offers[0].version.as_str()), (Some(2), "1.2.0"), "what was believed stays");
    }
    drop(server);
}

#[tokio::test]
async fn what_the_schedule_does_follows_the_settings() {
    let (_publisher, server, bench, run) = following("schedule").await;
    run.room.turn_of_the_clock().await;
    assert_eq!(bench.record(), Record::Idle, "off by default, and not asked within the first minute");
    let settings = UpdateSettings { channel_url: Some(server.address.clone()), automatic: Automatic::Download, ..UpdateSettings::default() };
    run.room.configure(settings).await.unwrap();
    run.check().await;
    run.room.turn_of_the_clock().await;
    let view = run.wait(UpdatePhase::Verified).await;
    assert!(view.attempt.unwrap().automatic);
    run.room.cancel().await.unwrap();

    // A server that sends rubbish is not asked for it again and again.
    server.set(Fault::Flip(9));
    fs::remove_file(bench.places().files.join("targets").join(sha256(&image("1.1.0")))).unwrap();
    run.room.turn_of_the_clock().await;
    let view = run.wait(UpdatePhase::Idle).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.asked();
    run.room.turn_of_the_clock().await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(server.ranges().is_empty(), "{:?}", view.failed);
}

#[tokio::test]
async fn settings_that_cannot_be_are_refused_and_another_channel_forgets_the_offers() {
    let (_publisher, server, _bench, run) = following("settings").await;
    run.check().await;
    for (url, channel, rate) in [("ftp://x", "stable", None), ("http://x", "St able", None), ("http://x", "stable", Some(Bytes(10)))] {
        let settings =
            UpdateSettings { channel_url: Some(url.to_owned()), channel: channel.to_owned(), rate_limit: rate, ..UpdateSettings::default() };
        assert!(run.room.configure(settings).await.is_err(), "{url} {channel}");
    }
    assert_eq!(run.view().await.offers.len(), 1);
    let settings = UpdateSettings { channel_url: Some(server.address.clone()), channel: "beta".to_owned(), ..UpdateSettings::default() };
    run.room.configure(settings).await.unwrap();
    assert!(run.view().await.offers.is_empty());
    assert!(run.check().await.unwrap().contains("this box follows \"beta\""));
}

#[tokio::test]
async fn a_newer_release_takes_the_place_of_what_waits_and_old_files_go() {
    let (publisher, _server, bench, run) = following("newer").await;
    run.check().await;
    assert_eq!(run.install().await, None);
    run.wait(UpdatePhase::Verified).await;
    publisher.system(2, "1.2.0");
    assert_eq!(run.check().await, None);
    let view = run.view().await;
    assert_eq!((view.phase, view.offers[0].version.as_str(), view.history[0].outcome.as_str()), (UpdatePhase::Idle, "1.2.0", "cancelled"));
    assert!(support::names(&bench.places().files.join("targets")).is_empty());
    assert_eq!(run.install().await, None);
    assert_eq!(run.view().await.attempt.unwrap().version, "1.2.0");
}
