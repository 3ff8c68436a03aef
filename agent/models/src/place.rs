//! Where model files may lie.
//!
//! In: a path as an admin or a script gave it. Out: the real path of a file or folder inside one of the allowed folders, links resolved,
//! or a sentence. What lies outside is not looked at more than is needed to say so. Never writes.

use std::{
    io::ErrorKind,
    path::{Component, Path, PathBuf},
};

use warden_domain::{Problem, ProblemKind};

/// The folders models may be registered from.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Relative paths start here; always allowed.
    models_dir: PathBuf,
    /// Further allowed folders.
    others: Vec<PathBuf>,
    /// Folders of model disks that are mounted.
    disks: Vec<PathBuf>,
}

impl Places {
    pub(crate) const fn new(models_dir: PathBuf, others: Vec<PathBuf>) -> Self {
        Self { models_dir, others, disks: Vec::new() }
    }

    /// The same with the folders of model disks.
    pub(crate) fn with_disks(&self, disks: Vec<PathBuf>) -> Self {
        Self { disks, ..self.clone() }
    }

    /// The real path. `Invalid` when it lies outside or is not text, `BadModelFile` when it is inside but does not exist.
    pub(crate) fn resolve(&self, given: &Path) -> Result<PathBuf, Problem> {
        let text = given.to_str().ok_or_else(|| self.refused("A path that is not UTF-8 text cannot be used".to_owned()))?;
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(self.refused("An empty path, or one with control characters in it, cannot be used".to_owned()));
        }
        let wanted = plain(&self.models_dir.join(given));
        match wanted.canonicalize() {
            Ok(real) if self.holds(&real) => Ok(real),
            Ok(_) => Err(self.outside(&wanted)),
            Err(cause) if self.holds(&wanted) => Err(missing(&wanted, &cause)),
            Err(_) => Err(self.outside(&wanted)),
        }
    }

    /// Whether a path lies inside an allowed folder, by the folders' real paths and by the ones they were configured with.
    pub(crate) fn holds(&self, path: &Path) -> bool {
        self.roots().any(|root| path.starts_with(root) || root.canonicalize().is_ok_and(|real| path.starts_with(real)))
    }

    fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        self.searched().chain(&self.others)
    }

    /// The models folder.
    pub(crate) fn models_dir(&self) -> &Path {
        &self.models_dir
    }

    /// Folders in which models are looked for.
    pub(crate) fn searched(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.models_dir).chain(&self.disks)
    }

    fn outside(&self, path: &Path) -> Problem {
        self.refused(format!("{} does not lie in a folder for models", path.display()))
    }

    fn refused(&self, sentence: String) -> Problem {
        let folders: Vec<String> = self.roots().map(|root| root.display().to_string()).collect();
        Problem::new(ProblemKind::Invalid, format!("{sentence}."))
            .hint(format!("Put the model into {} and give its path there.", folders.join(" or ")))
            .param("path")
    }
}

fn missing(path: &Path, cause: &std::io::Error) -> Problem {
    let (why, hint) = match cause.kind() {
        ErrorKind::NotFound => ("does not exist", "Check the spelling, or copy the file there first."),
        ErrorKind::PermissionDenied => ("may not be read by the agent", "Give the agent's user the right to read it."),
        ErrorKind::NotADirectory => ("goes through a file as if that were a folder", "Check the spelling."),
        _ => ("cannot be read", "Check the disk it lies on."),
    };
    Problem::new(ProblemKind::BadModelFile, format!("{} {why}.", path.display())).hint(hint).param("path")
}

/// Takes out `.` and `..` by spelling alone, for paths whose end does not exist and so cannot be resolved by the system.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn nothing_outside_the_folders_for_models_can_be_named() {
        let dir = tempfile::tempdir().unwrap();
        let models = dir.path().join("models");
        fs::create_dir_all(models.join("sub")).unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        fs::write(models.join("a.gguf"), "x").unwrap();
        symlink(dir.path().join("secret"), models.join("link.gguf")).unwrap();
        symlink("a.gguf", models.join("inner.gguf")).unwrap();
        let places = Places::new(models.clone(), vec![]);
        for outside in ["../secret", "/etc/passwd", "sub/../../secret", "link.gguf", "/nonexistent/x", "../models-not/x"] {
            let problem = places.resolve(Path::new(outside)).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::Invalid, "{outside}: {problem:?}");
            assert!(problem.hint.unwrap().contains("models"));
        }
        let real = models.join("a.gguf").canonicalize().unwrap();
        for inside in ["a.gguf", "./a.gguf", "sub/../a.gguf", "inner.gguf"] {
            assert_eq!(places.resolve(Path::new(inside)).unwrap(), real, "{inside}");
        }
        assert_eq!(places.resolve(Path::new("gone.gguf")).unwrap_err().kind, ProblemKind::BadModelFile);
        assert_eq!(places.resolve(Path::new("a.gguf/x")).unwrap_err().kind, ProblemKind::BadModelFile);
        assert_eq!(places.resolve(Path::new("a\nb")).unwrap_err().kind, ProblemKind::Invalid);
    }
}
