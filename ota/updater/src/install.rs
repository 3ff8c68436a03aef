//! Writing the other slot: everything is looked at once more, RAUC writes, everything is looked at again. Nothing is written to a slot before
//! every question has its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rauc_client::{BundleFormat, BundleInfo, InstallArgs, Rauc, RaucError, Slot as RaucSlot, SlotState};
use warden_domain::tasks::Task;
use warden_domain::update::UpdateProgress;
use warden_domain::{Problem, ProblemKind};
use warden_trust::{Entry, PartCheck};
use warden_update_record::{Asked, Record, Slot};

use crate::fault::Fault;
use crate::host::number;
use crate::machine::Event;
use crate::room::{UpdateRoom, blocking};
use crate::start::TargetFacts;

impl UpdateRoom {
    /// From verified to staged.
    pub(crate) async fn write_slot(self: &Arc<Self>, task: &Task, cancel: &AtomicBool) -> Result<(), Fault> {
        task.step("check");
        let record = self.record();
        let Record::Verified { attempt } = &record else { return Err(crate::machine::Misstep { from: record.phase(), to: "installed" }.into()) };
        let (_, entry) = self.entry_at_work()?;
        if attempt.asked == Asked::Automatic {
            let failed = self.with(|known| known.failed.clone());
            failed.may_try(&entry.sha256, &number(&entry.version), warden_trust::Asked::Automatic)?;
        }
        let path = self.target(&entry.sha256);
        let (file, wanted) = (path.clone(), entry.clone());
        // The whole file once more, and our handle of it closed again, before RAUC opens it.
        blocking(move || {
            let opened = std::fs::File::open(&file).map_err(Fault::io("the fetched image cannot be opened"))?;
            let check = PartCheck::resume(&wanted, opened).map_err(Fault::io("the fetched image cannot be read"))?;
            Ok(check.finish()?)
        })
        .await?;

        let rauc = self.host.rauc().await?;
        let ours = rauc.compatible().await?;
        fits(&rauc.inspect(&path).await?, &entry, &ours)?;
        let (_, target) = target(&rauc.slots().await?)?;

        self.proven(&rauc, cancel).await?;
        task.done("check");
        task.step("install");
        not_cancelled(cancel)?;
        // From the first byte on a cut may start the new system: what it is gone back to and compared with is on the medium before.
        self.keep_way_back(attempt, target).await?;
        self.step(Event::Writing { target }).await?;
        if let Err(fault) = not_cancelled(cancel) {
            self.step(Event::NotWritten).await?;
            return Err(fault);
        }
        let args =
            InstallArgs { manifest_hash: entry.manifest_hash.map(|hash| hash.to_string()), transaction_id: Some(attempt.transaction.to_string()) };
        let room = Arc::clone(self);
        let installed = rauc.install(&path, &args, self.stall, move |progress| room.wrote(u64::from(progress.percent))).await;
        let found = match &installed {
            Err(fault) if !broke_off(fault) => Some(TargetFacts::default()),
            _ => self.after_install().await,
        };
        let Some(found) = found else {
            // RAUC may still be at work, or have made the slot the first one: the record stays, and the clock settles it.
            return Err(installed.err().map_or_else(untold, Fault::Rauc));
        };
        if !found.holds(attempt) {
            self.step(Event::NotWritten).await?;
            return Err(installed.err().map_or_else(|| Fault::NotStaged { detail: format!("{found:?}") }, Fault::Rauc));
        }
        task.done("install");
        task.step("stage");
        self.step(Event::Written { boot_id: self.machine.boot_id.clone() }).await?;
        // Somebody may pull the plug now, and the new system starts: the way back is brought up to date.
        if let Err(fault) = self.keep_way_back(attempt, target).await {
            tracing::warn!(%fault, "the state before the trial is the one from before the install; it is tried again before the restart");
        }
        let _gone_already = tokio::fs::remove_file(&path).await;
        Ok(())
    }

    fn wrote(&self, percent: u64) {
        self.set_progress(Some(UpdateProgress { done: percent, total: 100, bytes: false, per_second: None, left_s: None }));
    }
}

fn not_cancelled(cancel: &AtomicBool) -> Result<(), Fault> {
    if cancel.load(Ordering::Relaxed) { Err(Fault::Cancelled) } else { Ok(()) }
}

/// Whether only the way to RAUC broke, so that it may still be at work.
const fn broke_off(fault: &RaucError) -> bool {
    matches!(fault, RaucError::Bus { .. } | RaucError::Gone | RaucError::Stalled(_))
}

fn untold() -> Fault {
    let problem = Problem::new(ProblemKind::SystemService, "The update service does not say whether the new system is in its place.");
    Fault::Problem(problem.hint("It is asked again by itself; if it stays so, restart the box."))
}

/// Whether an image is what the release says and what a box takes.
pub(crate) fn fits(info: &BundleInfo, entry: &Entry, ours: &str) -> Result<(), Fault> {
    if info.compatible != ours {
        return Err(Fault::OtherProduct { found: info.compatible.clone(), expected: ours.to_owned() });
    }
    match &info.format {
        BundleFormat::Verity => {}
        BundleFormat::Plain => return Err(Fault::OtherFormat { format: "plain".to_owned() }),
        BundleFormat::Other(format) => return Err(Fault::OtherFormat { format: format.clone() }),
    }
    if info.runs_code() {
        return Err(Fault::RunsCode);
    }
    if let Some(found) = info.version.as_ref().filter(|found| number(found) != number(&entry.version)) {
        return Err(Fault::OtherVersion { found: found.clone(), expected: entry.version.clone() });
    }
    Ok(())
}

/// The slot that does not run: RAUC's name of it, and ours.
pub(crate) fn target(slots: &[RaucSlot]) -> Result<(String, Slot), Fault> {
    let slot = other(slots)?;
    slot.bootname.as_deref().and_then(|name| Slot::parse(name).ok()).map(|ours| (slot.name.clone(), ours)).ok_or(Fault::NoTarget)
}

/// The slot that does not run, as RAUC tells of it.
pub(crate) fn other(slots: &[RaucSlot]) -> Result<&RaucSlot, Fault> {
    let known = slots.iter().any(|slot| slot.state == SlotState::Booted);
    let named = |slot: &&RaucSlot| slot.state == SlotState::Inactive && slot.bootname.as_deref().is_some_and(|name| Slot::parse(name).is_ok());
    slots.iter().find(named).filter(|_| known).ok_or(Fault::NoTarget)
}

/// What RAUC says about a slot, by its name.
pub(crate) async fn target_facts(rauc: &Rauc, name: &str) -> Result<TargetFacts, Fault> {
    let slots = rauc.slots().await?;
    let slot = slots.iter().find(|slot| slot.name == name).ok_or(Fault::NoTarget)?;
    let primary = rauc.primary().await.is_ok_and(|primary| primary == name);
    Ok(TargetFacts { transaction: slot.transaction.clone(), complete: slot.status.as_deref() == Some("ok"), primary })
}

#[cfg(test)]
mod tests {
    use rauc_client::BootStatus;
    use warden_trust::{Digest, Kind, Requires};

    use super::*;

    fn info() -> BundleInfo {
        BundleInfo {
            compatible: "box".into(),
            version: Some("1.4.0".into()),
            manifest_hash: None,
            format: BundleFormat::Verity,
            hook_file: None,
            hooks: Vec::new(),
            handler: None,
            images: Vec::new(),
        }
    }

    fn entry() -> Entry {
        Entry {
            kind: Kind::Os,
            name: "lm-warden".into(),
            version: "1.4".into(),
            sha256: Digest::of(b""),
            bytes: 1,
            part_bytes: 65536,
            parts: Vec::new(),
            requires: Requires::default(),
            data_schema: Some(1),
            manifest_hash: None,
            waves: Vec::new(),
            notes: None,
            licence: None,
            source: None,
        }
    }

    #[test]
    fn an_image_that_brings_a_program_is_plain_foreign_or_misnamed_is_refused_each_with_its_own_code() {
        assert!(fits(&info(), &entry(), "box").is_ok());
        let refused = |info: BundleInfo| fits(&info, &entry(), "box").unwrap_err().code();
        assert_eq!(refused(BundleInfo { hook_file: Some("hook.sh".into()), ..info() }), "image_runs_code");
        assert_eq!(refused(BundleInfo { handler: Some("run.sh".into()), ..info() }), "image_runs_code");
        assert_eq!(refused(BundleInfo { format: BundleFormat::Plain, ..info() }), "image_format");
        assert_eq!(refused(BundleInfo { format: BundleFormat::Other("crypt".into()), ..info() }), "image_format");
        assert_eq!(refused(BundleInfo { compatible: "another".into(), ..info() }), "image_product");
        assert_eq!(refused(BundleInfo { version: Some("1.5.0".into()), ..info() }), "image_version");
    }

    #[test]
    fn the_running_slot_is_never_the_target() {
        let slot = |name: &str, bootname: &str, state| RaucSlot {
            name: name.into(),
            class: None,
            bootname: Some(bootname.into()),
            device: None,
            state,
            boot_status: BootStatus::Good,
            status: None,
            version: None,
            bundle_hash: None,
            sha256: None,
            transaction: None,
            installed: None,
        };
        let (a, b) = (slot("rootfs.0", "a", SlotState::Booted), slot("rootfs.1", "b", SlotState::Inactive));
        assert_eq!(target(&[a.clone(), b.clone()]).unwrap(), ("rootfs.1".to_owned(), Slot::B));
        let neither = slot("rootfs.0", "a", SlotState::Inactive);
        assert!(target(&[neither, b]).is_err(), "a box that does not know what runs");
        assert!(target(&[a]).is_err());
    }
}
