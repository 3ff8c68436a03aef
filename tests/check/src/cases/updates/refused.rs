//! Metadata that must not be believed. Each is served or uploaded to a box that runs; it must say why, in a sentence of its own, and change
//! nothing.
//!
//! Deliberate breaks: an agent that skips the check of signatures, and one that forgets the highest it has seen.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::calls;
use super::chain::bench;
use super::publisher::{Target, Wanted};
use super::site::{Site, on_this_machine};
use super::works::Build;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// The channel folder of these cases. The box follows it as the channel "stable"; other boxes of the run have a folder of their own, because a
/// floor never goes down in one.
pub const FOLDER: &str = "refusals";
/// The floor of every release in it.
pub const FLOOR: &str = "2.0.9";
/// Bytes of a file that stands for an image: three parts.
const DUMMY: usize = 9 << 20;

/// Runs a case on the machine of the bench, or on an agent of this machine.
pub fn at_site(
    stage: &mut Stage,
    task: &Task,
    result: &mut CaseResult,
    run: impl FnOnce(&mut Site<'_>, &mut Stage, &Task, &mut CaseResult) -> Result<(), String>,
) -> Result<(), String> {
    if on_this_machine(task) {
        return run(&mut Site::host(stage, task)?, stage, task, result);
    }
    let mut held = bench(stage, task)?;
    let bench = held.get()?;
    let mut site = Site::of(bench, stage, task)?;
    run(&mut site, stage, task, result)
}

/// A release of the box's own publisher that is believed, with a file that stands for an image; its version and digest.
pub fn believed(site: &mut Site<'_>, version: &str, result: &mut CaseResult) -> Result<(u64, String), String> {
    let image = site.dummy(version, DUMMY)?;
    if !site.publisher().channel(FOLDER).exists() && site.publisher().channel("stable").exists() {
        site.continued("stable", FOLDER)?;
    }
    let release = site.next_release();
    site.publisher().publish(FOLDER, &Wanted { floor: FLOOR, ..Wanted::version(release, vec![Target::os(version, &image)]) })?;
    site.follow(FOLDER, "off")?;
    let ended = calls::check(&site.console())?;
    let document = calls::document(&site.console())?;
    result
        .expect(ended.done && document["release"] == release, format!("release {release} is believed ({} {})", document["release"], ended.sentence));
    Ok((release, calls::offered(&document, version)?))
}

/// `ref-wrong-key`
pub fn wrong_key(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    if !on_this_machine(task) {
        super::refused_files::image(Build::Stranger, &["rauc_refused", "rauc_failed"], stage, task, result)?;
    }
    at_site(stage, task, result, |site, stage, task, result| {
        believed(site, "2.11.0", result)?;
        let stranger = site.stranger(stage, "stranger", &[], &task.log)?;
        let image = site.dummy("3.0.0", DUMMY)?;
        let wanted = Wanted::version(site.next_release() + 100, vec![Target::os("3.0.0", &image)]);
        let channel = stranger.publish("theirs", &wanted)?;
        site.serve_copy(&channel, "stable-of-a-stranger")?;
        site.follow("stable-of-a-stranger", "off")?;
        site.expect_refused("a release signed by other keys", &["not_signed_by_us"], result)?;
        let bundle = fs::read(stranger.bundle(&channel, "theirs")?).map_err(|e| format!("the stranger's bundle: {e}"))?;
        site.expect_bundle_refused("their bundle", &bundle, &["root_forked", "not_signed_by_us"], &[], result)?;
        site.follow(FOLDER, "off").map(drop)
    })
}

/// `ref-threshold`
pub fn threshold(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    at_site(stage, task, result, |site, _, _, result| {
        believed(site, "2.12.0", result)?;
        let good = site.publisher().channel(FOLDER);

        // One of two root keys signs a new root.
        let few = site.serve_copy(&good, "stable-few")?;
        let lonely = site.work().join("lonely-keys");
        let _older = fs::remove_dir_all(&lonely);
        copy_keys(site.publisher().keys(), &lonely, &["root-2.key", "root-3.key"])?;
        let newest = newest_root(&lonely)?;
        let keys = lonely.display().to_string();
        site.publisher().run(&["keys", "rotate", "--dir", &keys, "--dev-seed", "lonely"])?;
        let name = format!("root.{}.json", newest + 1);
        fs::copy(lonely.join(&name), few.join("metadata").join(&name)).map_err(|e| format!("{name}: {e}"))?;
        site.follow("stable-few", "off")?;
        site.expect_refused("a root signed by one key where two must", &["too_few_signatures"], result)?;

        // One key signs twice.
        let twice = site.serve_copy(&good, "stable-twice")?;
        let stamp = twice.join("metadata/timestamp.json");
        let text = fs::read_to_string(&stamp).map_err(|e| format!("{}: {e}", stamp.display()))?;
        fs::write(&stamp, doubled(&text)?).map_err(|e| format!("{}: {e}", stamp.display()))?;
        site.follow("stable-twice", "off")?;
        site.expect_refused("a timestamp with one signature twice", &["duplicate_signature"], result)?;
        site.follow(FOLDER, "off").map(drop)
    })
}

/// `ref-rollback-meta`
pub fn rollback_meta(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    at_site(stage, task, result, |site, _, _, result| {
        believed(site, "2.13.0", result)?;
        let old = site.serve_copy(&site.publisher().channel(FOLDER), "stable-old")?;
        let old_bundle = fs::read(site.publisher().bundle(&old, "old")?).map_err(|e| format!("the old bundle: {e}"))?;
        believed(site, "2.14.0", result)?;
        site.follow("stable-old", "off")?;
        site.expect_refused("the release before the newest", &["older_than_seen"], result)?;
        site.expect_bundle_refused("its bundle", &old_bundle, &["older_than_seen"], &["already seen"], result)?;

        // The same with a release whose time is over: age is no excuse for what is older than seen.
        let expired = site.continued(FOLDER, "stable-expired")?;
        super::forge::resign(&expired, site.publisher().keys(), |release, stamp| {
            release["version"] = (release["version"].as_u64().unwrap_or(2) - 1).into();
            for document in [release, stamp] {
                document["issued"] = "2020-01-01T00:00:00Z".into();
                document["expires"] = "2020-02-01T00:00:00Z".into();
            }
        })?;
        site.follow("stable-expired", "off")?;
        site.expect_refused("an old release that is expired, too", &["older_than_seen", "expired"], result)?;
        site.follow(FOLDER, "off").map(drop)
    })
}

/// `ref-rollback-os`
pub fn rollback_os(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    at_site(stage, task, result, |site, _, _, result| {
        believed(site, "2.15.0", result)?;
        result.note(format!("its floor is {FLOOR}"));
        // A publisher that forgot its own floor; the tool would say so.
        let old = site.dummy("2.0.5", DUMMY)?;
        let channel = site.continued(FOLDER, "stable-floor")?;
        let release = site.next_release();
        site.publisher().publish("stable-floor", &Wanted { floor: FLOOR, ..Wanted::version(release, vec![Target::os("2.15.9", &old)]) })?;
        super::forge::resign(&channel, site.publisher().keys(), |release, stamp| {
            release["floor"] = "0.1.0".into();
            release["entries"][0]["version"] = "2.0.5".into();
            stamp["version"] = (stamp["version"].as_u64().unwrap_or(0) + 1).into();
        })?;
        site.follow("stable-floor", "off")?;
        let before = site.still()?;
        let ended = calls::check(&site.console())?;
        let document = calls::document(&site.console())?;
        let offer = document["offers"].as_array().and_then(|all| all.iter().find(|o| o["version"] == "2.0.5").cloned()).unwrap_or_default();
        let code = offer["refused"]["code"].as_str().unwrap_or(document["check_fault"]["code"].as_str().unwrap_or_default()).to_owned();
        result.expect(code == "below_floor", format!("OS 2.0.5 is below the floor that was seen ({code}; {offer}; {})", ended.sentence));
        if let Some(sha256) = offer["sha256"].as_str() {
            let tried = calls::install(&site.console(), sha256, std::time::Duration::from_secs(60))?;
            result.expect(!tried.done && tried.sentence.contains("2.0.9"), format!("to install it is refused, naming the floor: {}", tried.sentence));
        }
        result.expect(site.still()?.disk_is(&before), "nothing was written");
        let bundle = fs::read(site.publisher().bundle(&channel, "floor")?).map_err(|e| format!("the bundle: {e}"))?;
        site.expect_bundle_refused("its bundle", &bundle, &[], &["2.0.9"], result)?;
        // The usual channel is the newest again.
        site.continued("stable-floor", FOLDER)?;
        super::forge::resign(&site.publisher().channel(FOLDER), site.publisher().keys(), |release, _| release["floor"] = FLOOR.into())?;
        believed(site, "2.15.1", result).map(drop)
    })
}

/// `ref-freeze`
pub fn freeze(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    at_site(stage, task, result, |site, _, _, result| {
        // What the box has seen tells it the time; then the channel stops being refreshed.
        let (release, _) = believed(site, "2.16.0", result)?;
        let frozen = site.publisher().channel(FOLDER);
        let days_ago = |days: i64| (warden_domain::clock::now() - jiff::SignedDuration::from_hours(24 * days)).to_string();
        super::forge::resign(&frozen, site.publisher().keys(), |_, stamp| {
            stamp["version"] = (stamp["version"].as_u64().unwrap_or(0) + 1).into();
            (stamp["issued"], stamp["expires"]) = (days_ago(30).into(), days_ago(16).into());
        })?;
        site.follow(FOLDER, "install")?;
        let before = site.still()?;
        calls::check(&site.console())?;
        let document = calls::document(&site.console())?;
        result.expect(document["stale"].is_string(), format!("the channel counts as stale: {}", document["stale"]));
        std::thread::sleep(std::time::Duration::from_secs(6));
        let document = calls::document(&site.console())?;
        let phase = document["phase"].as_str().unwrap_or_default().to_owned();
        result.expect(["idle", "confirmed", "rolled_back"].contains(&phase.as_str()), format!("nothing is installed by itself ({phase})"));
        result.expect(document["release"] == release, "what was believed before stays believed");
        let issues = site.console().expect("GET", "/api/issues", None, &[200])?.json();
        result.expect(issues.to_string().contains("channel_stale"), format!("an issue is raised ({})", issues["count"]));
        site.expect_still(&before, "a stale channel", result)?;
        result.expect(site.console().http.get("/healthz")?.status == 200, "the box serves on");
        let (keys, channel) = (site.publisher().keys().display().to_string(), frozen.display().to_string());
        site.publisher().run(&["refresh", "--keys", &keys, "--channel", &channel])?;
        site.follow(FOLDER, "off")?;
        let ended = calls::check(&site.console())?;
        let document = calls::document(&site.console())?;
        result.expect(ended.done && document["stale"].is_null(), format!("refreshed, it is alive again ({} {})", document["stale"], ended.sentence));
        Ok(())
    })
}

/// `ref-mix`
pub fn mix(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    at_site(stage, task, result, |site, _, _, result| {
        believed(site, "2.17.0", result)?;
        let other = site.serve_copy(&site.publisher().channel(FOLDER), "stable-mixed")?;
        let (release, _) = believed(site, "2.18.0", result)?;
        // The new timestamp with the old release under the new one's name.
        let good = site.publisher().channel(FOLDER);
        let said = |e: std::io::Error| format!("mixing two releases: {e}");
        fs::copy(good.join("metadata/timestamp.json"), other.join("metadata/timestamp.json")).map_err(said)?;
        fs::rename(other.join(format!("metadata/release.{}.json", release - 1)), other.join(format!("metadata/release.{release}.json")))
            .map_err(said)?;
        site.follow("stable-mixed", "off")?;
        site.expect_refused("a timestamp with the release before it", &["not_pinned"], result)?;

        let image = site.dummy("2.19.0", DUMMY)?;
        let release = site.next_release();
        let _older = fs::remove_dir_all(site.publisher().channel("beta"));
        let wanted = Wanted { channel: "beta", floor: FLOOR, ..Wanted::version(release, vec![Target::os("2.19.0", &image)]) };
        let channel = site.publisher().publish("beta", &wanted)?;
        site.follow("beta", "off")?;
        site.expect_refused("a release of the channel beta", &["other_channel"], result)?;
        let bundle = fs::read(site.publisher().bundle(&channel, "beta")?).map_err(|e| format!("the bundle: {e}"))?;
        site.expect_bundle_refused("its bundle", &bundle, &["other_channel"], &["beta", "stable"], result)?;

        let foreign = site.continued(FOLDER, "stable-foreign")?;
        super::forge::resign(&foreign, site.publisher().keys(), |release, stamp| {
            stamp["version"] = (stamp["version"].as_u64().unwrap_or(0) + 1).into();
            for document in [release, stamp] {
                document["compatible"] = "lm-warden-arm64".into();
            }
        })?;
        site.follow("stable-foreign", "off")?;
        site.expect_refused("a release of another product, signed with the right keys", &["other_product"], result)?;
        site.follow(FOLDER, "off").map(drop)
    })
}

/// Copies a folder of keys without some of them.
pub fn copy_keys(from: &Path, to: &Path, without: &[&str]) -> Result<(), String> {
    let said = |e: std::io::Error| format!("copying {}: {e}", from.display());
    fs::create_dir_all(to).map_err(said)?;
    for entry in fs::read_dir(from).map_err(said)?.flatten() {
        if !without.iter().any(|name| entry.file_name() == *name) {
            fs::copy(entry.path(), to.join(entry.file_name())).map_err(said)?;
        }
    }
    Ok(())
}

/// The number of the newest root file in a folder of keys.
fn newest_root(keys: &Path) -> Result<u64, String> {
    (1..100).rev().find(|n| keys.join(format!("root.{n}.json")).is_file()).ok_or_else(|| format!("{} holds no root file", keys.display()))
}

/// A signed file whose one signature stands there twice, in the form the tool writes.
fn doubled(text: &str) -> Result<String, String> {
    let file: Value = serde_json::from_str(text).map_err(|e| format!("the timestamp is not JSON: {e}"))?;
    let one = file["signatures"][0].to_string();
    let list = format!("[{one}]");
    if text.matches(&list).count() == 1 {
        Ok(text.replace(&list, &format!("[{one},{one}]")))
    } else {
        Err(format!("the timestamp is not as expected: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_doubled_without_any_other_change() {
        let text = r#"{"signatures":[{"key_id":"a","sig":"b"}],"signed":{"x":1}}"#;
        assert_eq!(doubled(text).unwrap(), r#"{"signatures":[{"key_id":"a","sig":"b"},{"key_id":"a","sig":"b"}],"signed":{"x":1}}"#);
        assert!(doubled("{}").is_err());
    }
}
