//! Adopting a disk, step by step.
//!
//! A plan that a person agreed to in, model storage out. Everything is judged once more right before the first write. Each step is looked
//! at after it was done; one that lost a race with the system's own probing is tried again. A cut in the middle leaves a disk that is
//! not remembered, and so is offered again.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use warden_domain::{
    Problem, ProblemKind,
    change::Topic,
    clock,
    ids::{AccountId, DiskId, TaskId, random_bytes},
    storage::{AdoptionPlan, Recorded},
    tasks::Task,
    units::Bytes,
};
use warden_store::disks;
use zbus::Variant;

use super::{
    classify, decide,
    objects::Objects,
    reunite::LABEL_LEAD,
    room::StorageRoom,
    udisks::{BLOCKS, BlockProxy, PartitionTableProxy, kind_of, quietly, said},
};

const STEPS: &[(&str, &str)] = &[
    ("check", "Check the disk once more"),
    ("table", "Write a new partition table"),
    ("format", "Format the partition with ext4"),
    ("record", "Remember the disk"),
    ("mount", "Mount it for models"),
];
/// GPT type of a partition with Linux data.
const LINUX_DATA: &str = "0fc63daf-8483-4772-8e79-3d69d8477de4";
/// Tries of a step that lost a race.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);
/// A new partition must show within this time.
const APPEARS: Duration = Duration::from_secs(20);

/// Begins; the task tells how it goes.
pub(super) fn begin(room: Arc<StorageRoom>, by: AccountId, plan: AdoptionPlan) -> TaskId {
    let task = room.tasks.begin("adopt-disk", STEPS, false);
    let id = task.id().clone();
    tokio::spawn(async move {
        // One disk at a time, and no mounting of others in between.
        let turn = room.turn.lock().await;
        let outcome = run(&room, &task, &by, &plan).await;
        drop(turn);
        match outcome {
            Ok(()) => tracing::info!(disk = %plan.disk, serial = %plan.serial, "disk adopted as model storage"),
            Err(problem) => {
                tracing::warn!(disk = %plan.disk, %problem, "a disk could not be adopted");
                task.fail(&problem);
            }
        }
        room.changes.publish(Topic::Storage);
    });
    id
}

async fn run(room: &StorageRoom, task: &Task, by: &AccountId, plan: &AdoptionPlan) -> Result<(), Problem> {
    task.step("check");
    let known = room.store.read(disks::list).await?;
    let all = room.objects().await?;
    let now = classify::disks(&all, &known);
    let fresh = decide::plan(&now, &plan.disk)?;
    if fresh != *plan {
        return Err(Problem::new(ProblemKind::Conflict, "The disk is not as it was when the plan was shown.").hint("Look at the plan again."));
    }
    let disk = now.iter().find(|d| d.key == plan.disk).ok_or_else(|| decide::no_disk(&plan.disk))?;
    let whole = all.whole(&plan.disk).ok_or_else(|| decide::no_disk(&plan.disk))?.name.clone();
    task.done("check");

    task.step("table");
    write_table(room, plan, &whole).await?;
    task.done("table");

    task.step("format");
    let label = format!("{LABEL_LEAD}{}", hex(&random_bytes::<4>()));
    let (part, uuid, size) = make_partition(room, plan, &whole, &label).await?;
    task.done("format");

    task.step("record");
    let recorded = Recorded {
        id: DiskId::random(),
        label,
        fs_uuid: uuid,
        serial: plan.serial.clone(),
        wwn: disk.wwn.clone(),
        model: disk.model.clone(),
        size: Bytes(size),
        filesystem: "ext4".to_owned(),
        adopted_at: clock::now(),
    };
    let row = recorded.clone();
    room.record(by, "storage.adopt", format!("{} {}", plan.serial, recorded.label), move |tx| disks::insert(tx, &row)).await?;
    task.done("record");

    task.step("mount");
    tracing::debug!(part, "mounting the new model storage");
    room.look().await?;
    let overview = warden_domain::storage::Storage::overview(room).await?;
    if let Some(sentence) = overview.degraded.iter().find(|s| s.contains(&recorded.serial)) {
        return Err(Problem::new(ProblemKind::SystemService, sentence.clone()).hint("The disk is remembered; it is mounted at the next start."));
    }
    task.done("mount");
    Ok(())
}

async fn write_table(room: &StorageRoom, plan: &AdoptionPlan, whole: &str) -> Result<(), Problem> {
    let bus = room.bus().await?;
    let proxy = async { BlockProxy::builder(&bus).path(format!("{BLOCKS}{whole}")).build().await };
    let block = proxy.await.map_err(|cause: zbus::Error| said("reach the disk", &cause))?;
    let mut tries = 1;
    loop {
        still(&room.objects().await?, plan, whole)?;
        match block.format("gpt", quietly([])).await {
            Ok(()) => return Ok(()),
            Err(cause) if tries < TRIES && lost_race(&cause) => {
                tracing::info!(whole, %cause, "writing the partition table is tried again");
                tries += 1;
                sleep(PAUSE).await;
            }
            Err(cause) => return Err(said("write a partition table", &cause)),
        }
    }
}

/// Whether the device of that name is still the disk that was agreed to. Asked before each write, first tries and later ones: names of
/// devices are given anew when a disk is pulled and another one is plugged in.
fn still(all: &Objects, plan: &AdoptionPlan, whole: &str) -> Result<(), Problem> {
    let serial = all.drives.get(&plan.disk).and_then(|drive| drive.serial.as_deref());
    if serial == Some(plan.serial.as_str()) && all.whole(&plan.disk).is_some_and(|block| block.name == whole) {
        return Ok(());
    }
    Err(Problem::new(
        ProblemKind::Conflict,
        format!("The disk with the serial number {} is gone, or is another device now. No other disk was written to.", plan.serial),
    )
    .hint("Leave it plugged in, and adopt it once more."))
}

/// Makes and formats the partition; its block's name, the UUID of its file system and its size.
async fn make_partition(room: &StorageRoom, plan: &AdoptionPlan, whole: &str, label: &str) -> Result<(String, String, u64), Problem> {
    let bus = room.bus().await?;
    let proxy = async { PartitionTableProxy::builder(&bus).path(format!("{BLOCKS}{whole}")).build().await };
    let table = proxy.await.map_err(|cause: zbus::Error| said("reach the disk", &cause))?;
    let mut tries = 1;
    loop {
        let wish = quietly([("label", Variant::from(label))]);
        still(&room.objects().await?, plan, whole)?;
        match table.create_partition_and_format(0, 0, LINUX_DATA, "models", quietly([]), "ext4", wish).await {
            Ok(_) => return appears(room, whole, label).await,
            // The call may have lost only the race for its answer: what counts is what is on the disk.
            Err(cause) if lost_race(&cause) => {
                if let Ok(made) = appears(room, whole, label).await {
                    return Ok(made);
                }
                if tries >= TRIES {
                    return Err(said("format the disk", &cause));
                }
                tracing::info!(whole, %cause, "formatting is tried again");
                tries += 1;
                write_table(room, plan, whole).await?;
            }
            Err(cause) => return Err(said("format the disk", &cause)),
        }
    }
}

/// Waits until the partition with this label shows on the disk.
async fn appears(room: &StorageRoom, whole: &str, label: &str) -> Result<(String, String, u64), Problem> {
    let until = Instant::now() + APPEARS;
    loop {
        if let Some(found) = made(&room.objects().await?, whole, label) {
            return Ok(found);
        }
        if Instant::now() > until {
            return Err(Problem::new(ProblemKind::SystemService, "The disk was formatted, but its new partition does not show.")
                .hint("Unplug the disk, plug it in again, and adopt it once more."));
        }
        sleep(Duration::from_millis(250)).await;
    }
}

fn made(all: &Objects, whole: &str, label: &str) -> Option<(String, String, u64)> {
    let fits =
        |b: &&super::objects::Block| b.part_of.as_deref() == Some(whole) && b.label.as_deref() == Some(label) && b.kind.as_deref() == Some("ext4");
    let block = all.blocks.values().find(fits)?;
    Some((block.name.clone(), block.uuid.clone()?, block.size))
}

/// Whether the system's own probing may have been in the way. A refusal is none.
fn lost_race(cause: &zbus::Error) -> bool {
    // Faults of the bus itself (no reply, an object that is not there yet) come as `FDO`.
    matches!(kind_of(cause), "Failed" | "DeviceBusy" | "Timedout" | "TimedOut") || matches!(cause, zbus::Error::FDO(_))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::objects::tests::{part, plug};

    #[test]
    fn the_new_partition_is_known_by_its_label_on_this_disk_only() {
        let mut all = Objects::default();
        plug(&mut all, "vdb", &[part("ext4", "wm-1", "u1", &[])]);
        plug(&mut all, "vdc", &[part("ext4", "wm-2", "u2", &[])]);
        assert_eq!(made(&all, "vdb", "wm-1").map(|m| m.1), Some("u1".to_owned()));
        assert_eq!(made(&all, "vdb", "wm-2"), None);
    }

    #[test]
    fn a_disk_that_was_swapped_in_the_middle_of_an_adoption_is_not_formatted() {
        let mut all = Objects::default();
        let key = plug(&mut all, "sdb", &[]);
        let plan = AdoptionPlan { disk: key.clone(), serial: "S-sdb".to_owned(), confirm_serial: false, sentences: Vec::new() };
        assert!(still(&all, &plan, "sdb").is_ok());
        // It comes back under another name.
        let mut moved = Objects::default();
        moved.drives.insert(key.clone(), all.drives[&key].clone());
        moved.blocks.insert("sdc".to_owned(), super::super::objects::Block { name: "sdc".to_owned(), ..all.blocks["sdb"].clone() });
        assert!(still(&moved, &plan, "sdb").is_err());
        // Another one has its name, and even its handle.
        let mut other = all.clone();
        other.drives.get_mut(&key).unwrap().serial = Some("S-other".to_owned());
        let problem = still(&other, &plan, "sdb").unwrap_err();
        assert!(problem.kind == ProblemKind::Conflict && problem.message.contains("S-sdb"), "{problem:?}");
        assert!(still(&Objects::default(), &plan, "sdb").is_err());
    }

    #[test]
    fn a_label_fits_the_file_system() {
        assert!(format!("{LABEL_LEAD}{}", hex(&random_bytes::<4>())).len() <= 16);
    }
}
