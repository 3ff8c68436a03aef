//! Room on the disk, told before the first byte. The sum is pure; only `free` asks the system.

use std::path::Path;

use warden_domain::{Problem, ProblemKind, units::Bytes};

/// Left free besides the model itself.
pub(crate) const RESERVE: u64 = 512 << 20;

/// Free bytes of the file system of a folder.
pub(crate) fn free(folder: &Path) -> Result<u64, Problem> {
    let room = nix::sys::statvfs::statvfs(folder)
        .map_err(|cause| Problem::from_io(&format!("asking {} for its free space", folder.display()), &cause.into()))?;
    Ok(room.blocks_available().saturating_mul(room.fragment_size()))
}

/// Refuses what does not fit: bytes still to come, of this download and of those before it.
pub(crate) fn check(needed: u64, promised: u64, free: u64, folder: &Path) -> Result<(), Problem> {
    let all = needed.checked_add(promised).and_then(|sum| sum.checked_add(RESERVE));
    if all.is_some_and(|all| all <= free) {
        return Ok(());
    }
    let others = if promised > 0 { format!(" {} are still to come for other downloads.", Bytes(promised)) } else { String::new() };
    Err(Problem::new(
        ProblemKind::DiskFull,
        format!(
            "There is not enough room: {} are needed, {} has {} free, and {} are kept free.{others} Nothing was fetched.",
            Bytes(needed),
            folder.display(),
            Bytes(free),
            Bytes(RESERVE)
        ),
    )
    .hint("Remove models that are not needed, choose a smaller file of the repository, or add model storage."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_what_is_needed_what_is_free_and_what_is_kept() {
        let gib = 1 << 30;
        check(gib, 0, gib + RESERVE, Path::new("/m")).unwrap();
        let problem = check(4 * gib, gib, 3 * gib, Path::new("/m")).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::DiskFull);
        for number in ["4.0 GiB are needed", "3.0 GiB free", "512.0 MiB are kept", "1.0 GiB are still to come"] {
            assert!(problem.message.contains(number), "{number}: {}", problem.message);
        }
        assert!(check(u64::MAX, 1, u64::MAX, Path::new("/m")).is_err());
    }
}
