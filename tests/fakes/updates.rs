//! Updates of a box in memory: the view is what a test says, and deeds are written down.

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind,
    ids::TaskId,
    units::Bytes,
    update::{AttemptView, Offer, Reaches, SlotView, Stick, UpdateFault, UpdatePhase, UpdateProgress, UpdateSettings, UpdateView, Updates, Upload},
};

use super::{World, earlier};

/// What a box in memory knows about updates.
#[derive(Clone, Debug)]
pub struct UpdateMemory {
    /// Where it stands.
    pub phase: UpdatePhase,
    /// What is set.
    pub settings: UpdateSettings,
    /// What is offered.
    pub offers: Vec<Offer>,
    /// Uploads.
    pub uploads: Vec<Upload>,
    /// The slots.
    pub slots: Vec<SlotView>,
    /// Why the last attempt did not work.
    pub fault: Option<UpdateFault>,
    /// How far the step is.
    pub progress: Option<UpdateProgress>,
    /// Why nothing can be installed.
    pub cannot_install: Option<String>,
}

impl Default for UpdateMemory {
    fn default() -> Self {
        Self {
            phase: UpdatePhase::Idle,
            settings: UpdateSettings::default(),
            offers: Vec::new(),
            uploads: Vec::new(),
            slots: Vec::new(),
            fault: None,
            progress: None,
            cannot_install: None,
        }
    }
}

/// A newer system, as a release offers it.
pub fn offer(version: &str) -> Offer {
    Offer {
        kind: "os",
        name: "lm-warden".to_owned(),
        version: version.to_owned(),
        sha256: "a".repeat(64),
        bytes: Bytes(900 << 20),
        notes: Some("Faster <loads>.".to_owned()),
        direction: "newer",
        reaches: Reaches::Now,
        refused: None,
        failed_before: None,
        here: false,
        installed: false,
    }
}

impl World {
    /// A box with a channel, an offer and an update in this phase.
    pub fn updating(&self, phase: UpdatePhase) {
        self.edit(|m| {
            m.updates.phase = phase;
            m.updates.settings.channel_url = Some("https://updates.example/stable".to_owned());
            m.updates.offers = vec![offer("1.4.0")];
            let slot = |slot: &str, version: &str, running| SlotView {
                slot: slot.to_owned(),
                version: Some(version.to_owned()),
                good: Some(true),
                running,
                next: Some(running),
            };
            m.updates.slots = vec![slot("a", "1.3.0", true), slot("b", "1.2.0", false)];
            if phase == UpdatePhase::Downloading {
                m.updates.progress =
                    Some(UpdateProgress { done: 300 << 20, total: 900 << 20, bytes: true, per_second: Some(12 << 20), left_s: Some(50) });
            }
        });
    }

    fn deed(&self, deed: String) {
        self.edit(|m| m.deeds.push(deed));
    }
}

#[async_trait]
impl Updates for World {
    async fn view(&self) -> UpdateView {
        let m = self.memory.lock().unwrap().updates.clone();
        let attempt = (m.phase != UpdatePhase::Idle).then(|| AttemptView {
            version: "1.4.0".to_owned(),
            from: "1.3.0".to_owned(),
            sha256: "a".repeat(64),
            bytes: Bytes(900 << 20),
            origin: "channel",
            automatic: false,
            began_at: earlier(600),
        });
        UpdateView {
            version: "1.3.0".to_owned(),
            slots: m.slots,
            cannot_install: m.cannot_install,
            checked_at: m.settings.channel_url.as_ref().map(|_| earlier(300)),
            next_check: None,
            check_fault: None,
            release: (!m.offers.is_empty()).then_some(7),
            stale: None,
            settings: m.settings,
            offers: m.offers,
            phase: m.phase,
            attempt,
            progress: m.progress,
            task: None,
            fault: m.fault,
            went_back: (m.phase == UpdatePhase::RolledBack).then(|| UpdateFault {
                code: "console".to_owned(),
                sentence: "The console did not answer.".to_owned(),
                at: earlier(60),
            }),
            gate: Vec::new(),
            failed: Vec::new(),
            history: Vec::new(),
            uploads: m.uploads,
        }
    }

    fn standing(&self) -> (UpdatePhase, Option<String>) {
        (self.memory.lock().unwrap().updates.phase, None)
    }

    async fn configure(&self, settings: UpdateSettings) -> Result<UpdateSettings, Problem> {
        self.edit(|m| m.updates.settings = settings.clone());
        Ok(settings)
    }

    async fn check(&self) -> Result<TaskId, Problem> {
        if self.memory.lock().unwrap().updates.settings.channel_url.is_none() {
            return Err(Problem::new(ProblemKind::Conflict, "No address of an update channel is set.").hint("Set one."));
        }
        self.deed("check".to_owned());
        Ok(TaskId::from_stored("tsk_check"))
    }

    async fn install(&self, sha256: Option<&str>) -> Result<TaskId, Problem> {
        self.deed(format!("install {}", sha256.unwrap_or("newest")));
        Ok(TaskId::from_stored("tsk_install"))
    }

    async fn restart(&self) -> Result<(), Problem> {
        if self.standing().0 != UpdatePhase::Staged {
            return Err(Problem::new(ProblemKind::Conflict, "No new system waits for a restart.").hint("Install one first."));
        }
        self.deed("restart".to_owned());
        Ok(())
    }

    async fn cancel(&self) -> Result<(), Problem> {
        self.deed("cancel".to_owned());
        Ok(())
    }

    async fn go_back(&self) -> Result<(), Problem> {
        self.deed("go-back".to_owned());
        Ok(())
    }

    async fn open_upload(&self, name: &str, bytes: Bytes) -> Result<Upload, Problem> {
        let upload = Upload { id: "up1".to_owned(), name: name.to_owned(), bytes, received: Bytes(0), begun_at: earlier(5) };
        self.edit(|m| m.updates.uploads.push(upload.clone()));
        Ok(upload)
    }

    async fn upload(&self, id: &str) -> Result<Upload, Problem> {
        let found = self.memory.lock().unwrap().updates.uploads.iter().find(|upload| upload.id == id).cloned();
        found.ok_or_else(|| Problem::new(ProblemKind::NotFound, "There is no such upload."))
    }

    async fn put_upload(&self, id: &str, offset: u64, piece: &[u8]) -> Result<Upload, Problem> {
        let stands = self.upload(id).await?.received.0;
        if offset != stands {
            return Err(Problem::new(ProblemKind::Conflict, format!("The upload stands at byte {stands}.")));
        }
        self.edit(|m| m.updates.uploads.iter_mut().filter(|upload| upload.id == id).for_each(|u| u.received = Bytes(stands + piece.len() as u64)));
        self.upload(id).await
    }

    async fn drop_upload(&self, id: &str) -> Result<(), Problem> {
        self.upload(id).await?;
        self.edit(|m| m.updates.uploads.retain(|upload| upload.id != id));
        Ok(())
    }

    async fn take_upload(&self, id: &str, install: bool) -> Result<TaskId, Problem> {
        self.upload(id).await?;
        self.deed(format!("take {id} {install}"));
        Ok(TaskId::from_stored("tsk_take"))
    }

    async fn take_from_stick(&self, stick: Stick, install: bool) -> Result<TaskId, Problem> {
        self.deed(format!("stick {stick:?} {install}"));
        Ok(TaskId::from_stored("tsk_stick"))
    }

    async fn before_power(&self) {}

    async fn power_failed(&self) {}
}
