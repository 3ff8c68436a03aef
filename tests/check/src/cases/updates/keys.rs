//! Keys that change and things that are withdrawn: a box learns of both from metadata alone.

use std::fs;
use std::time::Duration;

use super::calls;
use super::publisher::{Target, Wanted};
use super::refused::{FLOOR, FOLDER, at_site, believed};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const DUMMY: usize = 300_000;

/// `root-rotation`
pub fn rotation(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    at_site(stage, task, result, |site, _, _, result| {
        believed(site, "2.24.0", result)?;
        site.publisher().rotate(&["root-1", "timestamp-1"], "first rotation")?;
        site.publisher().rotate(&["root-2", "release-2"], "second rotation")?;
        site.server().take_asked();
        let (release, _) = believed(site, "2.25.0", result)?;
        let asked = site.server().take_asked();
        let roots: Vec<String> = asked.iter().filter(|a| a.status == 200).filter_map(|a| a.path.rsplit('/').next().map(str::to_owned)).collect();
        let walked = ["root.2.json", "root.3.json"].iter().all(|name| roots.iter().any(|seen| seen == name));
        result.expect(walked, format!("the box walked the chain from its first root to the third ({roots:?})"));
        let bundle = fs::read(site.publisher().bundle(&site.publisher().channel(FOLDER), "rotated")?).map_err(|e| format!("the bundle: {e}"))?;
        let id = calls::upload_bytes(&site.console(), "rotated.wob", &bundle)?;
        let ended = calls::take(&site.console(), &id, false, Duration::from_secs(60))?;
        result.expect(ended.done, format!("a bundle of release {release} is believed as well ({})", ended.sentence));
        calls::cancel(&site.console())?;
        calls::drop_upload(&site.console(), &id)?;
        // The next look asks for the next root only.
        calls::check(&site.console())?;
        let again: Vec<String> = site.server().take_asked().iter().map(|a| a.path.clone()).collect();
        let old = again.iter().any(|path| path.ends_with("root.2.json") || path.ends_with("root.3.json"));
        result.expect(!old, format!("what was believed is not asked for again ({again:?})"));
        Ok(())
    })
}

/// `revoked`
pub fn revoked(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    at_site(stage, task, result, |site, _, _, result| {
        let (_, withdrawn) = believed(site, "2.26.0", result)?;
        let next = site.dummy("2.27.0", DUMMY)?;
        let release = site.next_release();
        let wanted = Wanted { floor: FLOOR, revoked_targets: vec![withdrawn.clone()], ..Wanted::version(release, vec![Target::os("2.27.0", &next)]) };
        site.publisher().publish(FOLDER, &wanted)?;
        let ended = calls::check(&site.console())?;
        result.expect(ended.done, format!("a release that withdraws OS 2.26.0 is believed ({})", ended.sentence));
        // A later release, by mistake or malice, lists it again.
        let bad = site.dummy("2.26.0", 9 << 20)?;
        let release = site.next_release();
        site.continued(FOLDER, "stable-revoked")?;
        let channel =
            site.publisher().publish("stable-revoked", &Wanted { floor: FLOOR, ..Wanted::version(release, vec![Target::os("2.26.0", &bad)]) })?;
        site.follow("stable-revoked", "off")?;
        calls::check(&site.console())?;
        let before = site.still()?;
        let document = calls::document(&site.console())?;
        let offer = document["offers"].as_array().and_then(|all| all.iter().find(|o| o["sha256"] == withdrawn.as_str()).cloned()).unwrap_or_default();
        result.expect(offer["refused"]["code"] == "revoked_target", format!("the withdrawn image is refused: {offer}"));
        let tried = calls::install(&site.console(), &withdrawn, Duration::from_secs(60))?;
        result.expect(!tried.done && tried.sentence.contains("withdrawn"), format!("to install it is refused: {}", tried.sentence));
        let bundle = fs::read(site.publisher().bundle(&channel, "revoked")?).map_err(|e| format!("the bundle: {e}"))?;
        site.expect_bundle_refused("its bundle", &bundle, &[], &["withdrawn"], result)?;
        site.expect_still(&before, "the withdrawn image", result)?;

        // A key is withdrawn by a release of the other one.
        let stolen = site.publisher().key_id("release-1")?;
        let other = newest_other(site.publisher().keys())?;
        let release = site.next_release();
        let mut wanted = Wanted::version(release, vec![Target::os("2.27.0", &next)]);
        wanted.floor = FLOOR;
        wanted.revoked_keys = vec![stolen];
        wanted.signers = vec![other];
        site.continued("stable-revoked", FOLDER)?;
        site.publisher().publish(FOLDER, &wanted)?;
        site.follow(FOLDER, "off")?;
        let ended = calls::check(&site.console())?;
        result.expect(ended.done, format!("a release that withdraws a key is believed ({})", ended.sentence));
        let release = site.next_release();
        site.continued(FOLDER, "stable-thief")?;
        let thief = Wanted { floor: FLOOR, signers: vec!["release-1.key"], ..Wanted::version(release, vec![Target::os("2.28.0", &next)]) };
        site.publisher().publish("stable-thief", &thief)?;
        site.follow("stable-thief", "off")?;
        site.expect_refused("a release of the withdrawn key", &["revoked_signer"], result)?;
        // Whoever comes next signs with a key that counts.
        site.publisher().rotate(&["release-1"], "after the theft")?;
        believed(site, "2.29.0", result).map(drop)
    })
}

/// A release key that is not the first one and is still in use.
fn newest_other(keys: &std::path::Path) -> Result<&'static str, String> {
    ["release-3.key", "release-2.key"].into_iter().find(|name| keys.join(name).is_file()).ok_or_else(|| "there is one release key only".to_owned())
}
