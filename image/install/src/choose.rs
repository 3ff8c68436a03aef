//! Whether a disk may be installed on, and which one an answer file means. Disks and wishes come in, a disk or a refusal goes out; all
//! of it before a single byte is written.

use thiserror::Error;
use warden_domain::units::Bytes;

use crate::answer::{Answer, Selector};
use crate::disk::{Disk, Holds, exact};

/// Why nothing is installed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing fits.
    #[error("no disk has the {what} {wanted}; disks here: {here}. Correct answer.toml, or check that the disk is connected")]
    Missing {
        /// `serial` or `WWN`.
        what: &'static str,
        /// What was asked for.
        wanted: String,
        /// What there is.
        here: String,
    },
    /// More than one fits.
    #[error(
        "{count} disks have the {what} {wanted} ({names}), so it does not say which one to erase; name the disk by its {other}, or detach the others"
    )]
    Ambiguous {
        /// `serial` or `WWN`.
        what: &'static str,
        /// What was asked for.
        wanted: String,
        /// How many fit.
        count: usize,
        /// Their names.
        names: String,
        /// The other way.
        other: &'static str,
    },
    /// The stick itself.
    #[error("{0} is the stick this installer was started from; name another disk")]
    OwnStick(String),
    /// It cannot be written.
    #[error("{0} can only be read; look for a write switch or a lock in the controller")]
    ReadOnly(String),
    /// Somebody uses it.
    #[error("{disk} is in use by {user}; detach what uses it, or start the installer without it")]
    InUse {
        /// The disk.
        disk: String,
        /// Who.
        user: String,
    },
    /// Too small.
    #[error("{disk} is too small: it has {has}, LM Warden needs at least {needs}; choose a larger disk")]
    Small {
        /// The disk.
        disk: String,
        /// Its size.
        has: String,
        /// What is needed.
        needs: String,
    },
    /// It was installed from this answer before.
    #[error(
        "{disk} carries the installation {id} already, nothing was changed; remove the stick, or set reinstall = true to erase the disk and install again"
    )]
    Done {
        /// The disk.
        disk: String,
        /// The id.
        id: String,
    },
}

/// The disks a person may choose from: all but the stick.
#[must_use]
pub fn offered(disks: &[Disk]) -> Vec<&Disk> {
    disks.iter().filter(|disk| !disk.own_stick).collect()
}

/// Refuses a disk that must not or cannot be installed on.
///
/// # Errors
/// The reason.
pub fn admit(disk: &Disk, needed: Bytes) -> Result<(), Refusal> {
    if disk.own_stick {
        return Err(Refusal::OwnStick(disk.called()));
    }
    if disk.read_only {
        return Err(Refusal::ReadOnly(disk.called()));
    }
    if let Some(user) = &disk.in_use {
        return Err(Refusal::InUse { disk: disk.called(), user: user.clone() });
    }
    if disk.size < needed {
        return Err(Refusal::Small { disk: disk.called(), has: exact(disk.size), needs: exact(needed) });
    }
    Ok(())
}

/// The one disk that a selector means. The stick takes part, so that a number it shares with a disk is seen.
///
/// # Errors
/// None or several fit, or only the stick does.
pub fn select<'a>(disks: &'a [Disk], selector: &Selector) -> Result<&'a Disk, Refusal> {
    let (what, wanted, other) = match selector {
        Selector::Serial(serial) => ("serial", serial, "WWN"),
        Selector::Wwn(wwn) => ("WWN", wwn, "serial"),
    };
    let own = |disk: &'a Disk| match selector {
        Selector::Serial(_) => disk.serial.as_deref(),
        Selector::Wwn(_) => disk.wwn.as_deref(),
    };
    // World Wide Names are hexadecimal and are printed in either case.
    let fits = |disk: &&Disk| match selector {
        Selector::Serial(serial) => disk.serial.as_deref() == Some(serial),
        Selector::Wwn(wwn) => disk.wwn.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(wwn)),
    };
    let found: Vec<&Disk> = disks.iter().filter(fits).collect();
    match found.as_slice() {
        [one] if one.own_stick => Err(Refusal::OwnStick(one.called())),
        [one] => Ok(one),
        [] => {
            let here: Vec<&str> = offered(disks).into_iter().filter_map(own).collect();
            let here = if here.is_empty() { "none that tells one".to_owned() } else { here.join(", ") };
            Err(Refusal::Missing { what, wanted: wanted.clone(), here })
        }
        several => Err(Refusal::Ambiguous {
            what,
            wanted: wanted.clone(),
            count: several.len(),
            names: several.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>().join(", "),
            other,
        }),
    }
}

/// The disk an answer may be carried out on.
///
/// # Errors
/// Every reason not to.
pub fn decide<'a>(disks: &'a [Disk], answer: &Answer, needed: Bytes) -> Result<&'a Disk, Refusal> {
    let disk = select(disks, &answer.target)?;
    admit(disk, needed)?;
    let carried = matches!(&disk.holds, Holds::Warden { install_id: Some(id) } if *id == answer.install_id);
    if carried && !answer.reinstall {
        return Err(Refusal::Done { disk: disk.called(), id: answer.install_id.clone() });
    }
    Ok(disk)
}

/// Whether an answer that is refused was carried out before and still holds its secrets: they are no use to anybody but a finder.
#[must_use]
pub fn left_over(refusal: &Refusal, answer: &Answer) -> bool {
    matches!(refusal, Refusal::Done { .. }) && answer.seed.admin.is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::answer::Seed;
    use crate::disk::tests::disk;

    const NEEDED: Bytes = Bytes(20 << 30);

    fn answer(target: Selector) -> Answer {
        Answer { install_id: "one".into(), reinstall: false, target, enroll: false, seed: Seed::default() }
    }

    fn by_serial(serial: &str) -> Answer {
        answer(Selector::Serial(serial.to_owned()))
    }

    fn stick() -> Disk {
        Disk { own_stick: true, ..disk("sdc", "STICK") }
    }

    #[test]
    fn the_named_disk_is_taken_wherever_it_stands() {
        let disks = [disk("sda", "A"), disk("sdb", "B"), stick()];
        assert_eq!(decide(&disks, &by_serial("B"), NEEDED).unwrap().name, "sdb");
    }

    #[test]
    fn a_part_of_a_serial_number_names_nothing() {
        let disks = [disk("sda", "ABCD"), stick()];
        for wanted in ["ABC", "BCD", "abcd", "ABCDE"] {
            assert!(matches!(decide(&disks, &by_serial(wanted), NEEDED), Err(Refusal::Missing { .. })), "{wanted}");
        }
    }

    #[test]
    fn two_disks_with_one_number_are_never_chosen_between() {
        let disks = [disk("sda", "X"), disk("sdb", "X"), stick()];
        assert!(matches!(decide(&disks, &by_serial("X"), NEEDED), Err(Refusal::Ambiguous { count: 2, .. })));
        let disks = [disk("sda", "STICK"), stick()];
        assert!(matches!(decide(&disks, &by_serial("STICK"), NEEDED), Err(Refusal::Ambiguous { .. })));
    }

    #[test]
    fn the_stick_is_neither_offered_nor_taken() {
        let disks = [disk("sda", "A"), stick()];
        assert_eq!(offered(&disks).len(), 1);
        assert!(matches!(decide(&disks, &by_serial("STICK"), NEEDED), Err(Refusal::OwnStick(_))));
        assert!(admit(&stick(), NEEDED).is_err());
    }

    #[test]
    fn a_world_wide_name_is_taken_in_either_case() {
        let disks = [Disk { wwn: Some("naa.5002538E".into()), ..disk("sda", "A") }, disk("sdb", "B")];
        assert_eq!(decide(&disks, &answer(Selector::Wwn("NAA.5002538e".into())), NEEDED).unwrap().name, "sda");
        assert!(matches!(decide(&disks, &answer(Selector::Wwn("A".into())), NEEDED), Err(Refusal::Missing { .. })));
    }

    #[test]
    fn a_disk_that_is_too_small_is_refused_with_both_numbers() {
        let small = [Disk { size: Bytes(1 << 30), ..disk("sda", "A") }];
        let said = decide(&small, &by_serial("A"), NEEDED).unwrap_err().to_string();
        assert!(said.contains("1073741824") && said.contains("21474836480") && said.contains("1.0 GiB"), "{said}");
    }

    #[test]
    fn a_disk_that_is_locked_or_in_use_is_refused() {
        let locked = [Disk { read_only: true, ..disk("sda", "A") }];
        assert!(matches!(decide(&locked, &by_serial("A"), NEEDED), Err(Refusal::ReadOnly(_))));
        let used = [Disk { in_use: Some("md127".into()), ..disk("sda", "A") }];
        assert!(matches!(decide(&used, &by_serial("A"), NEEDED), Err(Refusal::InUse { .. })));
    }

    #[test]
    fn a_stick_left_in_installs_once() {
        let done = |id: &str| [Disk { holds: Holds::Warden { install_id: Some(id.into()) }, ..disk("sda", "A") }];
        assert!(matches!(decide(&done("one"), &by_serial("A"), NEEDED), Err(Refusal::Done { .. })));
        assert!(decide(&done("another"), &by_serial("A"), NEEDED).is_ok());
        let again = Answer { reinstall: true, ..by_serial("A") };
        assert!(decide(&done("one"), &again, NEEDED).is_ok());
        // An installation that was cut short carries no id and is begun anew.
        let cut = [Disk { holds: Holds::Warden { install_id: None }, ..disk("sda", "A") }];
        assert!(decide(&cut, &by_serial("A"), NEEDED).is_ok());
    }

    #[test]
    fn secrets_that_a_power_cut_left_on_the_stick_go_at_its_next_start_and_unused_ones_stay() {
        use crate::answer::Admin;
        let admin = Some(Admin { username: "ops".into(), password_hash: "$argon2id$x".into() });
        let with = Answer { seed: Seed { admin, ..Seed::default() }, ..by_serial("A") };
        let installed = [Disk { holds: Holds::Warden { install_id: Some("one".into()) }, ..disk("sda", "A") }];
        assert!(left_over(&decide(&installed, &with, NEEDED).unwrap_err(), &with));
        assert!(!left_over(&decide(&installed, &by_serial("A"), NEEDED).unwrap_err(), &by_serial("A")), "there is nothing to remove");
        let elsewhere = [Disk { holds: Holds::Warden { install_id: Some("one".into()) }, ..disk("sda", "B") }];
        assert!(!left_over(&decide(&elsewhere, &with, NEEDED).unwrap_err(), &with), "the disk meant is not there");
    }

    proptest! {
        #[test]
        fn whatever_is_chosen_is_the_only_disk_of_that_name_and_not_the_stick(
            serials in proptest::collection::vec("[AB]{0,2}", 0..6), at in 0usize..6, wanted in "[AB]{1,2}",
        ) {
            let disks: Vec<Disk> =
                serials.iter().enumerate().map(|(n, serial)| Disk { own_stick: n == at, ..disk(&format!("sd{n}"), serial) }).collect();
            if let Ok(chosen) = decide(&disks, &by_serial(&wanted), NEEDED) {
                prop_assert!(!chosen.own_stick);
                prop_assert_eq!(disks.iter().filter(|d| d.serial.as_deref() == Some(wanted.as_str())).count(), 1);
            }
        }
    }
}
