//! Disks of a box in memory: what the overview says is there; adopting and importing only put a task on the board.

use std::path::Path;

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind,
    ids::{AccountId, DiskId, TaskId},
    issue::IssueCode,
    storage::{
        Adoption, AdoptionPlan, Content, Disk, Import, Imports, ModelDisks, ModelRoot, Overview, Presence, Recorded, Role, SourceModel, Storage,
        Volume,
    },
    units::Bytes,
};

use super::{World, earlier, not_found};

impl World {
    /// Plugs a disk in; its serial number is `S-` and its handle.
    pub fn plug(&self, key: &str, role: Role) {
        let kind = (role != Role::Blank).then(|| "exfat".to_owned());
        let content = Content { device: "/dev/sdb".to_owned(), size: Bytes(64 << 30), kind, label: None, uuid: None, mounted_at: Vec::new() };
        let disk = Disk {
            key: key.to_owned(),
            model: Some("Disk <4>".to_owned()),
            serial: Some(format!("S-{key}")),
            wwn: None,
            size: Some(Bytes(64 << 30)),
            bus: None,
            removable: false,
            role,
            contents: vec![content],
            importable: role == Role::Foreign,
        };
        self.edit(|m| m.overview.disks.push(disk));
    }

    /// Remembers a disk that is not plugged in, with the issue that the check of disks would make of it.
    pub fn lose_volume(&self, label: &str, serial: &str) {
        let recorded = Recorded {
            id: DiskId::from_stored(format!("dsk_{label}")),
            label: label.to_owned(),
            fs_uuid: "uuid".to_owned(),
            serial: serial.to_owned(),
            wwn: None,
            model: Some("Lost disk".to_owned()),
            size: Bytes(1 << 40),
            filesystem: "ext4".to_owned(),
            adopted_at: earlier(9_000),
        };
        let sentence = format!("Lost disk (serial {serial}) is missing.");
        self.add_issue(IssueCode::ModelDiskMissing, recorded.id.as_str(), sentence.as_str(), None);
        self.edit(|m| {
            m.overview.degraded.push(sentence);
            m.overview.volumes.push(Volume { recorded, presence: Presence::Missing });
        });
    }
}

#[async_trait]
impl Storage for World {
    async fn overview(&self) -> Result<Overview, Problem> {
        Ok(self.memory.lock().unwrap().overview.clone())
    }

    async fn plan(&self, disk: &str) -> Result<AdoptionPlan, Problem> {
        let overview = self.memory.lock().unwrap().overview.clone();
        let found = overview.disks.iter().find(|d| d.key == disk).ok_or_else(|| not_found("disk", disk))?;
        if found.role == Role::System {
            return Err(Problem::new(ProblemKind::Forbidden, "It is the system disk.").hint("Choose another disk."));
        }
        Ok(AdoptionPlan {
            disk: disk.to_owned(),
            serial: found.serial.clone().unwrap_or_default(),
            confirm_serial: found.role != Role::Blank,
            sentences: vec![format!("This will erase {disk}.")],
        })
    }

    async fn adopt(&self, _: &AccountId, wish: Adoption) -> Result<TaskId, Problem> {
        self.failing()?;
        let plan = self.plan(&wish.disk).await?;
        if plan.confirm_serial && wish.serial.as_deref() != Some(&plan.serial) {
            return Err(Problem::new(ProblemKind::Invalid, "Something is on this disk.").hint("Repeat its serial number.").param("serial"));
        }
        Ok(self.tasks.begin("adopt-disk", &[("check", "Check")], false).id().clone())
    }

    async fn forget(&self, _: &AccountId, id: &DiskId) -> Result<(), Problem> {
        self.failing()?;
        self.edit(|m| m.overview.volumes.retain(|v| v.recorded.id != *id));
        Ok(())
    }
}

impl ModelDisks for World {
    fn roots(&self) -> Vec<ModelRoot> {
        Vec::new()
    }

    fn absent(&self, path: &Path) -> Option<Problem> {
        let overview = &self.memory.lock().unwrap().overview;
        let gone =
            overview.volumes.iter().find(|v| v.presence == Presence::Missing && path.starts_with(Path::new("/media").join(&v.recorded.label)))?;
        Some(Problem::new(ProblemKind::DiskMissing, format!("The disk {} is missing.", gone.recorded.serial)).hint("Plug it in again."))
    }
}

#[async_trait]
impl Imports for World {
    async fn look(&self, source: &str) -> Result<Vec<SourceModel>, Problem> {
        let overview = self.memory.lock().unwrap().overview.clone();
        overview.disks.iter().find(|d| d.key == source && d.importable).ok_or_else(|| not_found("source", source))?;
        Ok(vec![SourceModel { file: "tiny.gguf".to_owned(), size: Bytes(9), suggested_name: "tiny".to_owned(), has_checksum: true }])
    }

    async fn begin(&self, _: &AccountId, _: Import) -> Result<TaskId, Problem> {
        self.failing()?;
        Ok(self.tasks.begin("import-model", &[("copy", "Copy")], true).id().clone())
    }
}
