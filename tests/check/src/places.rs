//! Where things lie: the project, its build folder, its caches, the floor of the acceptance lists.
//!
//! In: the working directory and `WARDEN_CACHE`. Out: paths. It creates the folders of the harness and nothing else.

use std::path::{Path, PathBuf};

/// Lists that only this project has: what is too heavy for every run.
const OWN_LISTS: &[&str] = &["vllm"];

/// The folders of one run.
#[derive(Clone, Debug)]
pub struct Places {
    /// The project's root folder.
    pub root: PathBuf,
    /// Caches outside the tree (engines, models, Python environments, package files).
    pub cache: PathBuf,
    /// Evidence files.
    pub evidence: PathBuf,
    /// Logs of single cases.
    pub logs: PathBuf,
}

impl Places {
    /// Finds the project upwards from `from` and makes the evidence folders.
    ///
    /// # Errors
    /// A sentence when `from` is not inside the project or the folders cannot be made.
    pub fn find(from: &Path) -> Result<Self, String> {
        let root = from
            .ancestors()
            .find(|dir| dir.join("tests/accept").is_dir() && dir.join("Cargo.toml").is_file())
            .ok_or_else(|| {
                format!("{} is not inside the project: no folder above it holds tests/accept. Run it from the project's folder.", from.display())
            })?
            .to_path_buf();
        let cache = cache_folder(|name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from));
        let evidence = root.join("target/evidence");
        let logs = evidence.join("logs");
        for dir in [&cache, &logs] {
            std::fs::create_dir_all(dir).map_err(|e| format!("cannot make the folder {}: {e}", dir.display()))?;
        }
        Ok(Self { root, cache, evidence, logs })
    }

    /// The project's own copy of a list.
    #[must_use]
    pub fn accept(&self, check: &str) -> PathBuf {
        self.root.join("tests/accept").join(format!("{check}.toml"))
    }

    /// The floor of a list, when the folder it lives in stands beside the project. The project's own lists have none.
    #[must_use]
    pub fn accept_floor(&self, check: &str) -> Option<PathBuf> {
        if OWN_LISTS.contains(&check) {
            return None;
        }
        let folder = self.root.parent()?.join("shared/accept");
        folder.is_dir().then(|| folder.join(format!("{check}.toml")))
    }

    /// A debug build of one of the project's programs.
    #[must_use]
    pub fn debug_program(&self, name: &str) -> PathBuf {
        self.root.join("target/debug").join(name)
    }
}

/// The cache outside the tree, found as the Makefile finds it.
fn cache_folder(env: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    env("WARDEN_CACHE").unwrap_or_else(|| {
        let base = env("XDG_CACHE_HOME").unwrap_or_else(|| env("HOME").unwrap_or_else(|| "/root".into()).join(".cache"));
        base.join("lm-warden")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harness_and_the_makefile_agree_on_the_cache() {
        let with =
            |set: &'static [(&'static str, &'static str)]| move |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| PathBuf::from(v));
        assert_eq!(cache_folder(with(&[("HOME", "/h")])), PathBuf::from("/h/.cache/lm-warden"));
        assert_eq!(cache_folder(with(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")])), PathBuf::from("/x/lm-warden"));
        assert_eq!(cache_folder(with(&[("XDG_CACHE_HOME", "/x"), ("WARDEN_CACHE", "/w")])), PathBuf::from("/w"));
    }

    #[test]
    fn a_run_outside_the_project_says_where_to_run_it() {
        let said = Places::find(Path::new("/")).unwrap_err();
        assert!(said.contains("Run it from the project's folder"), "{said}");
    }
}
