//! Staged rollout: when a release reaches a box by itself. Each box has a fixed place from 0 to 9999 per release, so that another
//! release picks other boxes first, and a box's place never depends on when it asks.

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::release::Wave;

/// When a target may be taken without anybody asking for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// At once.
    Now,
    /// From then on; the page says "reaches this box in about N h".
    At(Timestamp),
    /// The rollout stops before this box; the publisher may go on with it in a later release.
    Held,
}

/// Where a box stands in a rollout. `machine` is its stable id, `release` the release version; `now` is the moment freshness is judged by.
#[must_use]
pub fn reach(waves: &[Wave], machine: &str, channel: &str, release: u64, now: Timestamp) -> Reach {
    if waves.is_empty() {
        return Reach::Now;
    }
    let place = place(machine, channel, release);
    match waves.iter().find(|wave| place < u64::from(wave.percent) * 100) {
        Some(wave) if wave.at <= now => Reach::Now,
        Some(wave) => Reach::At(wave.at),
        None => Reach::Held,
    }
}

fn place(machine: &str, channel: &str, release: u64) -> u64 {
    let mut hash = Sha256::new();
    for part in ["warden rollout", machine, channel, &release.to_string()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let mut head = [0; 8];
    for (slot, byte) in head.iter_mut().zip(hash.finalize()) {
        *slot = byte;
    }
    u64::from_be_bytes(head) % 10_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn waves() -> Vec<Wave> {
        [(100, 5), (200, 50), (300, 100)].map(|(second, percent)| Wave { at: at(second), percent }).to_vec()
    }

    #[test]
    fn a_wave_reaches_about_its_share_of_the_boxes() {
        let reached = (0..2000).filter(|n| reach(&waves(), &format!("box-{n}"), "stable", 7, at(250)) == Reach::Now).count();
        assert!((900..1100).contains(&reached), "{reached} of 2000");
    }

    #[test]
    fn another_release_picks_other_boxes_first() {
        let first = |release| (0..200).filter(|n| reach(&waves(), &format!("box-{n}"), "stable", release, at(150)) == Reach::Now).collect::<Vec<_>>();
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn without_waves_everybody_is_reached_and_a_stopped_rollout_holds_the_rest() {
        assert_eq!(reach(&[], "box", "stable", 1, at(0)), Reach::Now);
        assert_eq!(reach(&[Wave { at: at(0), percent: 0 }], "box", "stable", 1, at(9)), Reach::Held);
    }

    proptest! {
        #[test]
        fn once_reached_a_box_stays_reached(machine in "[a-f0-9]{32}", release in 1_u64..1000, early in 0_i64..400, later in 0_i64..400) {
            if reach(&waves(), &machine, "beta", release, at(early)) == Reach::Now {
                prop_assert_eq!(reach(&waves(), &machine, "beta", release, at(early + later)), Reach::Now);
            }
        }

        #[test]
        fn the_promised_moment_is_kept(machine in "[a-f0-9]{32}", now in 0_i64..400) {
            if let Reach::At(moment) = reach(&waves(), &machine, "beta", 3, at(now)) {
                prop_assert!(moment > at(now));
                prop_assert_eq!(reach(&waves(), &machine, "beta", 3, moment), Reach::Now);
            }
        }
    }
}
