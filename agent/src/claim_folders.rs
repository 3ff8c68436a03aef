//! One agent per folder: a lock on the state folder and on the runtime folder, held as long as the agent runs.
//!
//! In: folders that exist. Out: the locks, or a sentence. Without them a second agent would adopt the engines of the first, take over
//! its local socket and end its engines with its own end. The kernel drops a lock with its process, so a crash leaves none behind;
//! engines do not inherit it.

use std::{
    fs::{File, OpenOptions, TryLockError},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use warden_domain::{Problem, ProblemKind};

/// Name of the file that is locked; it stays empty.
const FILE: &str = "agent.lock";

/// Locks each folder; keep what comes back. A folder that is named twice is locked once.
///
/// # Errors
/// Another agent runs on one of them, or the file cannot be made.
pub fn claim(folders: &[&Path]) -> Result<Vec<File>, Problem> {
    let mut real: Vec<_> = folders.iter().map(|folder| folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf())).collect();
    real.sort();
    real.dedup();
    real.iter().map(|folder| lock(folder)).collect()
}

fn lock(folder: &Path) -> Result<File, Problem> {
    let path = folder.join(FILE);
    let failed = |cause: &std::io::Error| {
        let problem = Problem::from_io(&format!("locking {}", path.display()), cause);
        if problem.hint.is_some() { problem } else { problem.hint("Check that the agent's user may write in that folder.") }
    };
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(|cause| failed(&cause))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Problem::new(ProblemKind::Conflict, format!("Another agent runs on the folder {} already.", folder.display()))
                .hint("Stop that agent, or give this one its own state_dir and runtime_dir."))
        }
        Err(TryLockError::Error(cause)) => Err(failed(&cause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_on_one_folder_is_refused_and_the_next_after_a_crash_is_not() {
        let (state, run, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = claim(&[state.path(), run.path()]).unwrap();
        for pair in [[state.path(), other.path()], [other.path(), run.path()]] {
            let problem = claim(&pair).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::Conflict);
            assert!(problem.full_text().contains("runtime_dir"), "{}", problem.full_text());
        }
        drop(first);
        claim(&[state.path(), run.path()]).unwrap();
    }

    #[test]
    fn one_folder_for_both_is_no_conflict_with_oneself() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(claim(&[dir.path(), dir.path()]).unwrap().len(), 1);
    }
}
