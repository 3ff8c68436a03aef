//! Sticks: mounted for reading only, and given back.
//!
//! A disk's handle in, a folder with its files out. Nothing on it can be run, be a device or carry rights; nothing is written to it.

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind,
    storage::{OpenSource, Role, Sources},
};
use warden_store::disks;

use super::{classify, decide, room::StorageRoom};

/// Besides nosuid and nodev, which the disk manager always adds.
const OPTIONS: &str = "ro,nosuid,nodev,noexec,noatime";
/// Where the disk manager mounts for the agent's user.
const OURS: &str = "/media/warden/";

#[async_trait]
impl Sources for StorageRoom {
    async fn open(&self, key: &str) -> Result<OpenSource, Problem> {
        let _turn = self.turn.lock().await;
        let known = self.store.read(disks::list).await?;
        let all = self.objects().await?;
        let found = classify::disks(&all, &known);
        let disk = found.iter().find(|d| d.key == key).ok_or_else(|| decide::no_disk(key))?;
        let name = decide::name(disk);
        if disk.role == Role::System {
            return Err(Problem::new(ProblemKind::Forbidden, format!("{name} is the system disk.")).hint("Choose a stick.").param("source"));
        }
        let block = classify::carrier(&all.of_drive(key)).ok_or_else(|| {
            Problem::new(ProblemKind::Invalid, format!("{name} carries no file system that models can be imported from."))
                .hint(format!("Use a stick with {}.", classify::CARRIERS.join(" or ")))
                .param("source")
        })?;
        // Left mounted by a run before this one, maybe with other options: mounted anew.
        if block.mounts.iter().flatten().any(|at| at.starts_with(OURS.trim_end_matches('/'))) {
            self.unmount(&block.name).await;
        }
        let path = self.mount(&block.name, OPTIONS).await?;
        let flags = nix::sys::statvfs::statvfs(&path).map(|s| s.flags());
        let wanted = nix::sys::statvfs::FsFlags::ST_RDONLY | nix::sys::statvfs::FsFlags::ST_NOSUID | nix::sys::statvfs::FsFlags::ST_NODEV;
        if !flags.is_ok_and(|flags| flags.contains(wanted)) {
            self.unmount(&block.name).await;
            return Err(Problem::new(ProblemKind::SystemService, format!("{name} could not be mounted for reading only, so it is left alone."))
                .hint("Unplug it and plug it in again."));
        }
        tracing::info!(source = key, path = %path.display(), "source mounted for reading");
        Ok(OpenSource { key: key.to_owned(), path, name })
    }

    async fn close(&self, source: &OpenSource) {
        let _turn = self.turn.lock().await;
        let Ok(all) = self.objects().await else { return };
        let here = all.blocks.values().find(|b| b.mounts.as_ref().is_some_and(|m| m.contains(&source.path)));
        if let Some(block) = here {
            self.unmount(&block.name).await;
            tracing::info!(source = source.key, "source unmounted");
        }
    }
}
