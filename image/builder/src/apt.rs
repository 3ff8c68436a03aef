//! What the build needs from this host's apt: the mirror, the network options and the dates of the suites.
//!
//! Nothing of it ends in an image: sources and options are passed on mmdebstrap's command line and removed with the lists.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::fault::{Done, Fault};
use crate::files;
use crate::mirror::{self, Mirror};
use crate::recipe::Recipe;
use crate::steps::note;
use crate::tool::run;

/// Options of the host that decide whether a mirror can be reached or believed at all.
const PASSED_ON: [&str; 6] = [
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
    "Acquire::http::Proxy",
    "Acquire::https::Proxy",
    "Acquire::https::CAInfo",
    "Acquire::Retries",
];

/// A way to Debian's archive.
pub(crate) struct Apt {
    mirror: Mirror,
    options: Vec<String>,
}

impl Apt {
    /// Reads the host's configuration.
    pub(crate) fn of_host() -> Done<Self> {
        let mut sources = Vec::new();
        let mut names = vec![PathBuf::from("/etc/apt/sources.list")];
        if let Ok(entries) = std::fs::read_dir("/etc/apt/sources.list.d") {
            names.extend(entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "list" || e == "sources")));
        }
        names.sort();
        for name in names.iter().filter(|name| name.is_file()) {
            sources.push((name.display().to_string(), files::read(name)?));
        }
        let mirror = mirror::find(&sources).ok_or_else(|| {
            Fault::refused("apt sources of this host", "none of them is a Debian archive", "add Debian's archive to /etc/apt/sources.list")
        })?;
        let dump = run("apt-config", Command::new("apt-config").arg("dump"))?;
        Ok(Self { mirror, options: passed_on(&dump) })
    }

    /// Options for mmdebstrap's `--aptopt`.
    pub(crate) fn options(&self) -> &[String] {
        &self.options
    }

    /// Source lines of the recipe's suite.
    pub(crate) fn sources(&self, recipe: &Recipe) -> Vec<String> {
        let (suite, components) = (&recipe.suite, recipe.components.join(" "));
        let Mirror { archive, security } = &self.mirror;
        vec![
            format!("deb {archive} {suite} {components}"),
            format!("deb {archive} {suite}-updates {components}"),
            format!("deb {security} {suite}-security {components}"),
        ]
    }

    /// The dates of the suite's indexes, as one string: it changes whenever the archive publishes something. Asked at most once an
    /// hour; without network the last known answer is used.
    pub(crate) fn suite_dates(&self, recipe: &Recipe, cache: &Path) -> Done<Option<String>> {
        let kept = cache.join(format!("{}.dates", recipe.suite));
        let age = kept.metadata().ok().and_then(|m| m.modified().ok()).and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age < Duration::from_secs(3600)) {
            return Ok(Some(files::read(&kept)?));
        }
        let suite = &recipe.suite;
        let Mirror { archive, security } = &self.mirror;
        let indexes = [format!("{archive}/dists/{suite}"), format!("{archive}/dists/{suite}-updates"), format!("{security}/dists/{suite}-security")];
        let folder = tempfile::tempdir().map_err(Fault::io("cannot make a folder", std::env::temp_dir()))?;
        let file = folder.path().join("InRelease");
        let mut dates = String::new();
        for index in indexes {
            let mut fetch = Command::new("/usr/lib/apt/apt-helper");
            for option in &self.options {
                fetch.arg("-o").arg(option);
            }
            fetch.arg("download-file").arg(format!("{index}/InRelease")).arg(&file);
            if run("apt-helper", &mut fetch).is_err() {
                note("the archive does not answer; using what is cached");
                return kept.exists().then(|| files::read(&kept)).transpose();
            }
            let text = files::read(&file)?;
            dates.push_str(text.lines().find_map(|line| line.strip_prefix("Date: ")).unwrap_or("unknown"));
            dates.push('\n');
            files::remove(&file)?;
        }
        files::write(&kept, &dates)?;
        Ok(Some(dates))
    }
}

/// Picks the options to pass on out of `apt-config dump`, as `Name=value`.
fn passed_on(dump: &str) -> Vec<String> {
    dump.lines()
        .filter_map(|line| line.strip_suffix("\";")?.split_once(" \""))
        .filter(|(name, value)| PASSED_ON.contains(name) && !value.is_empty())
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_of_the_host_reaches_the_build_and_other_settings_do_not() {
        let dump = "APT \"\";\nAcquire::http::Proxy \"http://p:3142\";\nAPT::Architecture \"amd64\";\nAcquire::Check-Date \"false\";\n";
        assert_eq!(passed_on(dump), ["Acquire::http::Proxy=http://p:3142", "Acquire::Check-Date=false"]);
    }
}
