//! The steps of an installation and how far they are together. Pure values.

use warden_domain::steps::{Progress, StepState, Steps};
use warden_domain::units::Bytes;

/// Key, title and share of the whole in percent of each step, in their order. The disk becomes bootable by the last one alone.
pub const PLAN: [(&str, &str, u64); 10] = [
    ("check", "Check disk and stick", 1),
    ("clear", "Make the disk unbootable", 1),
    ("partition", "Partition and format", 6),
    ("write-root-a", "Write system slot A", 35),
    ("write-root-b", "Write system slot B", 26),
    ("boot-files", "Copy the boot files", 4),
    ("state", "Write identity and settings", 2),
    ("data", "Write folders and engine packs", 5),
    ("verify", "Read everything back and compare", 18),
    ("activate", "Make the disk bootable", 2),
];

/// An installation that has not begun.
#[must_use]
pub fn steps() -> Steps {
    Steps::new("install", &PLAN.map(|(key, title, _)| (key, title)))
}

/// Progress in bytes.
#[must_use]
pub fn bytes(done: Bytes, total: Bytes) -> Progress {
    Progress { done: done.0, total: Some(total.0), unit: "B".to_owned() }
}

/// How far the whole is, in percent; 100 only when every step is done.
#[must_use]
pub fn percent(steps: &Steps) -> u64 {
    let share = |key: &str| PLAN.iter().find(|(name, ..)| *name == key).map_or(0, |(.., share)| *share);
    let whole = |step: &warden_domain::steps::Step| match (step.state, &step.progress) {
        (StepState::Done | StepState::Skipped, _) => share(&step.key),
        (StepState::Running, Some(Progress { done, total: Some(total), .. })) if *total > 0 => {
            // Never the whole share before the step says that it is done.
            (u128::from(share(&step.key)) * u128::from(*done.min(total)) / u128::from(*total)).try_into().unwrap_or(0)
        }
        _ => 0,
    };
    let sum = steps.steps.iter().map(whole).sum::<u64>();
    if steps.over() && steps.failure.is_none() { 100 } else { sum.min(99) }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn the_shares_make_one_whole() {
        assert_eq!(PLAN.iter().map(|(.., share)| share).sum::<u64>(), 100);
    }

    #[test]
    fn progress_only_grows_and_ends_at_one_hundred() {
        let mut steps = steps();
        let mut seen = vec![percent(&steps)];
        for (key, ..) in PLAN {
            steps.begin(key, Timestamp::UNIX_EPOCH);
            for done in [0, 50, 100, 100] {
                steps.advance(key, bytes(Bytes(done), Bytes(100)));
                seen.push(percent(&steps));
            }
            steps.finish(key, Timestamp::UNIX_EPOCH);
            seen.push(percent(&steps));
        }
        assert!(seen.is_sorted(), "{seen:?}");
        assert_eq!(seen.last(), Some(&100));
        assert_eq!(seen.iter().filter(|p| **p == 100).count(), 1, "only the end is the end");
    }

    #[test]
    fn the_disk_becomes_bootable_last() {
        assert_eq!(PLAN[PLAN.len() - 1].0, "activate");
        assert_eq!(PLAN[1].0, "clear", "nothing is written before old bootability is gone");
    }
}
