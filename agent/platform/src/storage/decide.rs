//! May this disk become model storage, and what would that do to it?
//!
//! The disks as classified in, a plan or a refusal out. Pure: the same judgement is made for the plan that is shown, and again right before
//! anything is written.

use warden_domain::{
    Problem, ProblemKind,
    storage::{AdoptionPlan, Disk, Role},
    units::Bytes,
};

/// Smaller disks hold no model worth an own disk.
const SMALLEST: Bytes = Bytes(256 << 20);

/// The plan for one disk.
///
/// # Errors
/// A sentence that says why this disk is not taken.
pub(super) fn plan(disks: &[Disk], key: &str) -> Result<AdoptionPlan, Problem> {
    let disk = disks.iter().find(|d| d.key == key).ok_or_else(|| no_disk(key))?;
    let name = name(disk);
    if disk.role == Role::System {
        return Err(Problem::new(ProblemKind::Forbidden, format!("{name} is the system disk: this machine was started from it."))
            .hint("Choose another disk. The system disk holds models already, in its own data partition.")
            .param("disk"));
    }
    // Without knowing which disk is the system's, every disk could be it.
    if !disks.iter().any(|d| d.role == Role::System) {
        return Err(Problem::new(ProblemKind::SystemService, "It cannot be told which disk this machine was started from, so none is touched.")
            .hint("Restart the appliance and try again."));
    }
    let conflict = |what: &str, hint: &str| Err(Problem::new(ProblemKind::Conflict, format!("{name} {what}.")).hint(hint).param("disk"));
    match disk.role {
        Role::System => unreachable_role(&name),
        Role::Storage => conflict("is model storage already", "Its models are listed with the others."),
        Role::InUse => conflict("is in use: something on it is mounted, or it is part of an array", "End what uses it first."),
        Role::ReadOnly => Err(unfit(&name, "is write protected", "Slide its switch, or choose another disk.")),
        Role::Empty => Err(unfit(&name, "has no medium", "Insert one, or choose another disk.")),
        Role::Blank | Role::Foreign => sentences(disk, &name),
    }
}

/// The role was handled above; kept as a refusal so that no change there can open the way to the system disk.
fn unreachable_role(name: &str) -> Result<AdoptionPlan, Problem> {
    Err(Problem::new(ProblemKind::Forbidden, format!("{name} is the system disk.")).hint("Choose another disk.").param("disk"))
}

fn sentences(disk: &Disk, name: &str) -> Result<AdoptionPlan, Problem> {
    let Some(size) = disk.size.filter(|size| *size >= SMALLEST) else {
        return Err(unfit(
            name,
            &format!("has {}, and model storage needs {SMALLEST} at least", disk.size.unwrap_or_default()),
            "Choose a larger disk.",
        ));
    };
    let Some(serial) = disk.serial.clone() else {
        return Err(unfit(name, "tells no serial number, so it could not be told apart from others after a restart", "Choose another disk."));
    };
    let lost: Vec<String> = disk
        .contents
        .iter()
        .filter(|c| c.kind.is_some())
        .map(|c| match (&c.kind, &c.label) {
            (Some(kind), Some(label)) => format!("{kind} \"{label}\" on {} ({})", c.device, c.size),
            (kind, _) => format!("{} on {} ({})", kind.as_deref().unwrap_or_default(), c.device, c.size),
        })
        .collect();
    let first = if lost.is_empty() {
        format!("This will erase {name}, {size}. Nothing was found on it.")
    } else {
        format!("This will erase {name}, {size}, with everything on it: {}.", lost.join(", "))
    };
    Ok(AdoptionPlan {
        disk: disk.key.clone(),
        serial,
        confirm_serial: disk.role != Role::Blank,
        sentences: vec![
            first,
            "A new partition table with one partition is written.".to_owned(),
            "The partition is formatted with ext4 and gets a label of its own.".to_owned(),
            "It is mounted now and at each start, and remembered by its UUID and the disk's serial number.".to_owned(),
        ],
    })
}

/// Whether the caller repeated the serial number where that is needed.
///
/// # Errors
/// `Invalid`, naming what to repeat.
pub(super) fn confirmed(plan: &AdoptionPlan, repeated: Option<&str>) -> Result<(), Problem> {
    match repeated {
        Some(text) if text.trim() == plan.serial => Ok(()),
        Some(_) => Err(Problem::new(ProblemKind::Invalid, "The serial number given is not the one of this disk.")
            .hint(format!("It is {}. Make sure that it is the disk you mean.", plan.serial))
            .param("serial")),
        None if plan.confirm_serial => Err(Problem::new(ProblemKind::Invalid, "Something is on this disk, and it would be lost.")
            .hint("Repeat the disk's serial number in `serial` to erase it.")
            .param("serial")),
        None => Ok(()),
    }
}

/// A disk as people call it.
pub(super) fn name(disk: &Disk) -> String {
    let model = disk.model.as_deref().unwrap_or("The disk");
    match &disk.serial {
        Some(serial) => format!("{model} (serial {serial})"),
        None => model.to_owned(),
    }
}

fn unfit(name: &str, what: &str, hint: &str) -> Problem {
    Problem::new(ProblemKind::Invalid, format!("{name} {what}.")).hint(hint).param("disk")
}

/// No disk of that handle.
pub(super) fn no_disk(key: &str) -> Problem {
    let shown: String = key.chars().filter(|c| !c.is_control()).take(60).collect();
    Problem::new(ProblemKind::NotFound, format!("There is no disk {shown}.")).hint("GET /api/storage lists the disks that are plugged in.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{
        classify::disks,
        objects::{
            Objects,
            tests::{part, plug},
        },
    };

    fn machine() -> Objects {
        let mut all = Objects::default();
        plug(&mut all, "vda", &[part("ext4", "", "u0", &["/state"])]);
        plug(&mut all, "vdb", &[]);
        plug(&mut all, "vdc", &[part("ntfs", "Holiday", "u2", &[])]);
        all
    }

    #[test]
    fn the_system_disk_is_refused_by_name() {
        let problem = plan(&disks(&machine(), &[]), "KEY_vda").unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Forbidden);
        assert!(problem.message.contains("system disk") && problem.message.contains("S-vda"), "{problem:?}");
    }

    #[test]
    fn no_disk_is_touched_while_the_system_disk_is_not_known() {
        let mut all = machine();
        all.blocks.get_mut("vda1").unwrap().mounts = Some(vec![]);
        for key in ["KEY_vda", "KEY_vdb", "KEY_vdc"] {
            assert_eq!(plan(&disks(&all, &[]), key).unwrap_err().kind, ProblemKind::SystemService, "{key}");
        }
    }

    #[test]
    fn a_blank_disk_needs_no_serial_and_a_used_one_does() {
        let all = disks(&machine(), &[]);
        let blank = plan(&all, "KEY_vdb").unwrap();
        assert!(!blank.confirm_serial);
        assert!(confirmed(&blank, None).is_ok());
        assert!(blank.sentences[0].contains("will erase") && blank.sentences[0].contains("S-vdb"));
        let used = plan(&all, "KEY_vdc").unwrap();
        assert!(used.sentences[0].contains("Holiday"));
        assert_eq!(confirmed(&used, None).unwrap_err().param.as_deref(), Some("serial"));
        assert!(confirmed(&used, Some("S-vdb")).is_err());
        assert!(confirmed(&used, Some(" S-vdc ")).is_ok());
        // A serial that is given must fit, also where none is needed.
        assert!(confirmed(&blank, Some("S-vdc")).is_err());
    }

    #[test]
    fn a_disk_without_a_serial_number_could_not_be_found_again_and_is_refused() {
        let mut all = machine();
        all.drives.get_mut("KEY_vdb").unwrap().serial = None;
        assert!(plan(&disks(&all, &[]), "KEY_vdb").unwrap_err().message.contains("serial number"));
        all = machine();
        all.blocks.get_mut("vdb").unwrap().size = 1 << 20;
        assert!(plan(&disks(&all, &[]), "KEY_vdb").unwrap_err().message.contains("1.0 MiB"));
        assert_eq!(plan(&disks(&all, &[]), "nope").unwrap_err().kind, ProblemKind::NotFound);
    }
}
