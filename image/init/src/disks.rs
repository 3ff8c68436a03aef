//! What the kernel shows of disks and partitions, and the wait for the boot disk. Reads sysfs and partition tables, writes nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bootdisk::{Partition, Unclear};
use crate::gpt;

const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(100);

/// The device node of a partition.
pub fn node(partition: &Partition) -> String {
    format!("/dev/{}", partition.name)
}

/// Waits until the boot disk is there with all it needs. With a word from the loader the first fit is the disk; without one a moment
/// more is given, so that a second disk that also fits is seen and stops the start.
pub fn wait_for_boot_disk<T>(find: fn(&[Partition], Option<&str>) -> Result<T, Unclear>, loader: Option<&str>) -> Result<T, Unclear> {
    let begun = Instant::now();
    loop {
        let found = find(&partitions(), loader);
        if found.is_ok() && loader.is_none() {
            sleep(STEP * 3);
            return find(&partitions(), None);
        }
        if found.is_ok() || begun.elapsed() > PATIENCE {
            return found;
        }
        sleep(STEP);
    }
}

fn partitions() -> Vec<Partition> {
    let mut tables: BTreeMap<String, BTreeMap<u32, String>> = BTreeMap::new();
    let mut found = Vec::new();
    for item in fs::read_dir("/sys/class/block").into_iter().flatten().flatten() {
        let Ok(name) = item.file_name().into_string() else { continue };
        let Ok(uevent) = fs::read_to_string(item.path().join("uevent")) else { continue };
        let value = |key: &str| uevent.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        if value("DEVTYPE") != Some("partition") {
            continue;
        }
        // The link of a partition ends in .../<disk>/<partition>.
        let Ok(link) = fs::read_link(item.path()) else { continue };
        let Some(disk) = link.parent().and_then(|parent| parent.file_name()).and_then(|disk| disk.to_str()).map(str::to_owned) else { continue };
        let number = value("PARTN").and_then(|number| number.parse().ok()).unwrap_or(0);
        let ids = tables.entry(disk.clone()).or_insert_with(|| table(&disk).unwrap_or_default());
        let label = value("PARTNAME").unwrap_or_default().to_owned();
        found.push(Partition { name, id: ids.get(&number).cloned(), disk, label });
    }
    found.sort_by(|one, two| one.name.cmp(&two.name));
    found
}

/// The partition ids of a disk: from the first copy of its table, or from the last one when the first is damaged.
fn table(disk: &str) -> Option<BTreeMap<u32, String>> {
    let number = |path: String| -> Option<u64> { fs::read_to_string(path).ok()?.trim().parse().ok() };
    let block = number(format!("/sys/class/block/{disk}/queue/logical_block_size"))?;
    let size = number(format!("/sys/class/block/{disk}/size"))? * 512;
    let file = File::open(format!("/dev/{disk}")).ok()?;
    [block, size.checked_sub(block)?].into_iter().find_map(|at| {
        let mut sector = [0; 512];
        file.read_exact_at(&mut sector, at).ok()?;
        let header = gpt::header(&sector)?;
        let mut bytes = vec![0; header.bytes];
        file.read_exact_at(&mut bytes, header.first_block.checked_mul(block)?).ok()?;
        Some(gpt::partition_ids(header, &bytes).into_iter().collect())
    })
}
