//! Remembered disks that are not there or cannot be used, as sentences and as issues. Pure but for reading the room's picture.

use async_trait::async_trait;
use warden_domain::{
    change::Topic,
    issue::{Check, Finding, IssueCode, Looked, Said},
    storage::{Presence, Recorded, Volume},
};

use super::{elsewhere::Elsewhere, room::StorageRoom};

const CODES: &[IssueCode] = &[IssueCode::ModelDiskMissing];

/// The disk's name for people.
pub(super) fn name_of(disk: &Recorded) -> String {
    format!("{} (serial {})", disk.model.as_deref().unwrap_or("The model disk"), disk.serial)
}

/// The sentence of degraded mode for one disk; `None` when it is there, or not yet looked for.
pub(super) fn degraded(disk: &Recorded, presence: &Presence) -> Option<Said> {
    let disk = name_of(disk);
    match presence {
        Presence::Mounted { .. } | Presence::Mounting => None,
        Presence::Missing => Some(Said::ModelDiskMissing { disk }),
        Presence::Unusable { reason } => Some(Said::ModelDiskUnusable { disk, why: reason.clone() }),
    }
}

fn decide(volumes: &[Volume]) -> Vec<Finding> {
    let of = |volume: &Volume| {
        Some(Finding {
            code: IssueCode::ModelDiskMissing,
            subject: volume.recorded.id.to_string(),
            said: degraded(&volume.recorded, &volume.presence)?,
            hint: "Plug the disk in again; it is picked up by itself. If it is gone for good, forget it on the storage page.".to_owned(),
            fix: None,
        })
    };
    volumes.iter().filter_map(of).collect()
}

#[async_trait]
impl Check for StorageRoom {
    fn codes(&self) -> &'static [IssueCode] {
        CODES
    }

    fn listens(&self) -> &'static [Topic] {
        &[Topic::Storage]
    }

    async fn look(&self) -> Looked {
        match self.volumes() {
            Ok(volumes) => Looked::Seen(decide(&volumes)),
            Err(problem) => Looked::NotChecked(problem.message),
        }
    }
}

#[async_trait]
impl Check for Elsewhere {
    fn codes(&self) -> &'static [IssueCode] {
        CODES
    }

    async fn look(&self) -> Looked {
        Looked::NotChecked("This is not the appliance: its disks belong to somebody else.".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use warden_domain::{ids::DiskId, units::Bytes};

    use super::*;

    fn volume(id: &str, presence: Presence) -> Volume {
        let recorded = Recorded {
            id: DiskId::from_stored(id),
            label: "wm-00000001".to_owned(),
            fs_uuid: "uuid".to_owned(),
            serial: format!("S-{id}"),
            wwn: None,
            model: None,
            size: Bytes(1 << 40),
            filesystem: "ext4".to_owned(),
            adopted_at: Timestamp::UNIX_EPOCH,
        };
        Volume { recorded, presence }
    }

    #[test]
    fn each_disk_that_is_away_is_an_issue_of_its_own_and_one_being_looked_for_is_none() {
        let mounted = Presence::Mounted { path: "/media/warden/x".into(), free: None, total: None };
        let volumes = [
            volume("dsk_here", mounted),
            volume("dsk_coming", Presence::Mounting),
            volume("dsk_gone", Presence::Missing),
            volume("dsk_copy", Presence::Unusable { reason: "It may be a copy.".to_owned() }),
        ];
        let found = decide(&volumes);
        let seen: Vec<_> = found.iter().map(|f| (f.code, f.subject.as_str())).collect();
        assert_eq!(seen, [(IssueCode::ModelDiskMissing, "dsk_gone"), (IssueCode::ModelDiskMissing, "dsk_copy")]);
        assert!(found[0].said.to_string().contains("S-dsk_gone") && found[1].said.to_string().ends_with("It may be a copy."), "{found:?}");
    }
}
