//! Files that must not reach a slot: changed, cut, endless, of the wrong kind, from the wrong hand, in an archive that plays tricks.

use std::fs;
use std::time::Duration;

use warden_vm::quiet;

use super::archive;
use super::calls;
use super::chain::bench;
use super::publisher::{Target, Wanted};
use super::refused::{FLOOR, FOLDER, at_site, believed};
use super::server::Fault;
use super::site::Site;
use super::works::Build;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// `ref-flip`
pub fn flip(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    at_site(stage, task, result, |site, _, _, result| {
        let (_, sha256) = believed(site, "2.21.0", result)?;
        let bundle = fs::read(site.publisher().bundle(&site.publisher().channel(FOLDER), "flip")?).map_err(|e| format!("the bundle: {e}"))?;
        let mut flipped = bundle.clone();
        let at = flipped.len() - (5 << 20);
        flipped[at] ^= 1;
        site.expect_bundle_refused("a bundle with one bit changed", &flipped, &["damaged_part"], &["checksum"], result)?;

        site.server().fault(&sha256, Fault::WrongByte(5 << 20), 100);
        let before = site.still()?;
        site.server().take_asked();
        let ended = calls::install(&site.console(), &sha256, Duration::from_secs(200))?;
        let fault = calls::document(&site.console())?["fault"].clone();
        result.expect(!ended.done && fault["code"] == "damaged_part", format!("a download with one bit changed is refused: {fault}"));
        let asked = site.server().take_asked();
        let again: Vec<_> = asked.iter().skip(1).filter_map(|a| a.range.clone()).collect();
        result.expect(
            !again.is_empty() && again.iter().all(|range| range == "bytes=4194304-"),
            format!("only from the damaged part on is it fetched again ({again:?})"),
        );
        site.server().mend();
        calls::cancel(&site.console())?;
        expect_disk_still(site, &before, "it", result)
    })
}

/// `ref-cut-file`
pub fn cut_file(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    at_site(stage, task, result, |site, _, _, result| {
        let (_, sha256) = believed(site, "2.22.0", result)?;
        let bundle = fs::read(site.publisher().bundle(&site.publisher().channel(FOLDER), "cut")?).map_err(|e| format!("the bundle: {e}"))?;
        let cut = bundle.get(..bundle.len() / 2).unwrap_or_default();
        site.expect_bundle_refused("half a bundle", cut, &["bundle_cut", "cut_short"], &[], result)?;
        let before = site.still()?;
        site.server().take_asked();
        // Too slow is a reason to try again; what comes then is not.
        site.server().fault(&sha256, Fault::Drip(500), 1);
        expect_ended(site, &sha256, "a file that drips, and then a status instead of it", Fault::Status(403), &["server_status"], result)?;
        let drip = site.server().take_asked().iter().filter(|a| a.sent > 0 && a.sent < 30_000).map(|a| a.took.as_secs()).max().unwrap_or(0);
        result.expect((20..=45).contains(&drip), format!("the drip was given up after {drip} s"));
        // Last: where the pieces fall so, all of the file is there and right before it is too long, and what is right is kept.
        let target = site.publisher().channel(FOLDER).join("targets").join(&sha256);
        let whole = fs::read(&target).map_err(|e| format!("{}: {e}", target.display()))?;
        fs::write(&target, whole.get(..6 << 20).unwrap_or_default()).map_err(|e| format!("{}: {e}", target.display()))?;
        expect_ended(site, &sha256, "a file that is shorter than its release says", None, &["cut_short", "other_range"], result)?;
        fs::write(&target, &whole).map_err(|e| format!("{}: {e}", target.display()))?;
        expect_ended(site, &sha256, "a file that never ends", Fault::Endless, &["too_long"], result)?;
        expect_disk_still(site, &before, "none of them", result)
    })
}

/// Tries to fetch a file while the server has a fault, and takes the try back.
fn expect_ended(
    site: &mut Site<'_>,
    sha256: &str,
    what: &str,
    fault: impl Into<Option<Fault>>,
    codes: &[&str],
    result: &mut CaseResult,
) -> Result<(), String> {
    if let Some(fault) = fault.into() {
        site.server().fault(sha256, fault, 100);
    }
    let ended = calls::install(&site.console(), sha256, Duration::from_secs(200))?;
    let fault = calls::document(&site.console())?["fault"].clone();
    let seen = fault["code"].as_str().unwrap_or_default();
    result.expect(!ended.done && codes.contains(&seen), format!("{what} is refused as {} ({seen}): {}", codes.join(" or "), fault["message"]));
    site.server().mend();
    calls::cancel(&site.console())
}

/// `ref-paths`
pub fn paths(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    at_site(stage, task, result, |site, _, _, result| {
        let image = site.dummy("2.23.0", 200_000)?;
        let release = site.next_release();
        site.publisher().publish(FOLDER, &Wanted { floor: FLOOR, ..Wanted::version(release, vec![Target::os("2.23.0", &image)]) })?;
        let good = fs::read(site.publisher().bundle(&site.publisher().channel(FOLDER), "paths")?).map_err(|e| format!("the bundle: {e}"))?;
        for (what, bytes, words) in archive::twins(&good) {
            site.expect_bundle_refused(&format!("a bundle with {what}"), &bytes, &[], words, result)?;
        }
        Ok(())
    })
}

/// `ref-hook`
pub fn hook(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    image(Build::Hook, &["image_runs_code"], stage, task, result)
}

/// `ref-plain`
pub fn plain(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    image(Build::Plain, &["image_format", "rauc_refused", "rauc_failed"], stage, task, result)
}

/// An image that a true release carries, and that the box must refuse when it looks into it.
pub fn image(build: Build, codes: &[&str], stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench(stage, task)?;
    let bench = held.get()?;
    bench.machine(stage, task)?;
    bench.publish(build, stage, task)?;
    let site = Site::of(bench, stage, task)?;
    site.follow("stable", "off")?;
    let console = site.console();
    let asked = calls::check(&console)?;
    result.expect(asked.done, format!("the release itself is believed ({})", asked.sentence));
    let before = site.still()?;
    let sha256 = calls::offered(&calls::document(&console)?, build.version())?;
    let ended = calls::install(&console, &sha256, quiet(60))?;
    let document = calls::document(&console)?;
    let fault = &document["fault"];
    let code = fault["code"].as_str().unwrap_or_default();
    result.expect(!ended.done, format!("the image is refused: {fault}"));
    result.expect(codes.iter().any(|known| code.contains(known)), format!("as {} ({code})", codes.join(" or ")));
    calls::cancel(&console)?;
    expect_disk_still(&site, &before, "it", result)
}

/// The record may tell of the attempt afterwards; the disk may not.
fn expect_disk_still(site: &Site<'_>, before: &super::site::Still, what: &str, result: &mut CaseResult) -> Result<(), String> {
    let now = site.still()?;
    result.expect(now.disk_is(before), format!("{what} changed nothing of slots, boot entries and kernels"));
    let phase = calls::document(&site.console())?["phase"].clone();
    let rests = ["idle", "confirmed", "rolled_back"].iter().any(|p| phase == *p);
    result.expect(rests, format!("and nothing waits to be installed ({phase})"));
    Ok(())
}
