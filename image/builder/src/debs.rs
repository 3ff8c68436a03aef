//! Downloaded Debian packages, kept by hash outside the tree: `debs/<sha256>/<file name>`.
//!
//! mmdebstrap gets them through its hooks: before the install all cached files are linked into apt's archive folder, after it
//! whatever is there comes to a staging folder and is filed. apt itself verifies every file against the signed indexes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::fault::{Done, Fault};
use crate::files;
use crate::lockfile::Pin;

/// The store.
pub(crate) struct Debs {
    dir: PathBuf,
}

impl Debs {
    pub(crate) fn open(cache: &Path) -> Done<Self> {
        let dir = cache.join("debs");
        files::make_dir(&dir)?;
        Ok(Self { dir })
    }

    /// Hook that offers the cached files to apt.
    pub(crate) fn offer_hook(&self) -> String {
        let dir = self.dir.display();
        format!(
            "mkdir -p \"$1/var/cache/apt/archives\"; find '{dir}' -name '*.deb' -exec cp -l -t \"$1/var/cache/apt/archives\" {{}} + 2>/dev/null || \
             find '{dir}' -name '*.deb' -exec cp -t \"$1/var/cache/apt/archives\" {{}} +"
        )
    }

    /// Hook that takes what apt used.
    pub(crate) fn collect_hook(&self) -> String {
        let stage = self.stage();
        format!(
            "mkdir -p '{0}'; find \"$1/var/cache/apt/archives\" -name '*.deb' -links 1 -exec mv -t '{0}' {{}} +; rm -rf \"$1/var/cache/apt/archives\"",
            stage.display()
        )
    }

    /// Files everything in the staging folder under its hash.
    pub(crate) fn file(&self) -> Done {
        let stage = self.stage();
        files::make_dir(&stage)?;
        for path in files::walk(&stage)? {
            let home = self.dir.join(files::sha256(&path)?);
            files::make_dir(&home)?;
            let Some(name) = path.file_name() else { continue };
            std::fs::rename(&path, home.join(name)).map_err(Fault::io("cannot file the package", &path))?;
        }
        files::remove(&stage)
    }

    /// Pins of the packages named by `(name, version)`, as far as their files are known.
    pub(crate) fn pins(&self, packages: &[(String, String)]) -> Done<BTreeMap<String, Pin>> {
        let mut hashes = BTreeMap::new();
        for path in files::walk(&self.dir)? {
            let hash = path.parent().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
            if let (Some((name, version)), Some(hash)) = (path.file_name().and_then(|n| split_name(&n.to_string_lossy())), hash) {
                hashes.insert((name, version), hash);
            }
        }
        Ok(packages
            .iter()
            .map(|(name, version)| {
                let sha256 = hashes.get(&(name.clone(), version.clone())).cloned().unwrap_or_else(|| "unknown".into());
                (name.clone(), Pin { version: version.clone(), sha256 })
            })
            .collect())
    }

    /// The version of the cached file of a package whose name holds its release, as a kernel's does.
    pub(crate) fn version_of(&self, package: &str) -> Done<Option<String>> {
        let names = files::walk(&self.dir)?;
        let found = names.iter().filter_map(|path| split_name(&path.file_name()?.to_string_lossy()));
        Ok(found.filter(|(name, _)| name == package).map(|(_, version)| version).max())
    }

    fn stage(&self) -> PathBuf {
        self.dir.with_file_name("debs.new")
    }
}

/// Name and version out of apt's file name, where a colon of the version is written as `%3a`.
fn split_name(file: &str) -> Option<(String, String)> {
    let mut parts = file.strip_suffix(".deb")?.split('_');
    Some((parts.next()?.to_owned(), parts.next()?.replace("%3a", ":")))
}

/// Installed packages out of dpkg's status file.
pub(crate) fn installed(status: &str) -> Vec<(String, String)> {
    status
        .split("\n\n")
        .filter_map(|stanza| {
            let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned);
            (field("Status")? == "install ok installed").then_some(())?;
            Some((field("Package")?, field("Version")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_with_an_epoch_finds_its_file() {
        assert_eq!(split_name("libfoo1_1%3a2.3-4_amd64.deb"), Some(("libfoo1".into(), "1:2.3-4".into())));
    }

    #[test]
    fn a_removed_package_is_not_pinned() {
        let status = "Package: a\nStatus: install ok installed\nVersion: 1\n\nPackage: b\nStatus: deinstall ok config-files\nVersion: 2\n";
        assert_eq!(installed(status), [("a".to_owned(), "1".to_owned())]);
    }
}
