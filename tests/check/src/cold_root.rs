//! A clean Debian root to follow the README in, and programs that run inside it.
//!
//! In: this machine's own package sources, certificates and Rust toolchain. Out: a folder with a minimal Debian (made once, kept as an
//! archive in the cache, unpacked anew for each use) and commands that see nothing else of the machine. What runs inside is in a
//! process namespace of its own, so ending the first program ends all of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command;
use crate::log::CaseLog;
use crate::places::Places;

/// What a fresh machine has besides Debian's minimum: enough to get the tree and to type the README's command.
const PACKAGES: &str = "ca-certificates,git,make";
/// Variables that tell clients how this machine reaches its registries.
const PASSED_ON: &[&str] = &[
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "PIP_INDEX_URL",
    "PIP_DEFAULT_TIMEOUT",
    "CARGO_HTTP_CAINFO",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];
/// Files that do the same.
const COPIED: &[&str] = &["/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/npmrc", "/etc/ssl/certs/ca-certificates.crt"];

/// An unpacked root; removed when dropped.
pub struct ColdRoot {
    folder: tempfile::TempDir,
    toolchain: PathBuf,
}

impl ColdRoot {
    /// Unpacks a fresh root, making the archive first when there is none.
    ///
    /// # Errors
    /// A sentence naming the step that failed.
    pub fn unpack(places: &Places, log: &CaseLog) -> Result<Self, String> {
        let archive = archive(places, log)?;
        let work = places.root.join("target/check");
        std::fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
        let folder = tempfile::Builder::new().prefix("cold-").tempdir_in(&work).map_err(|e| format!("no folder for the clean root: {e}"))?;
        let mut tar = Command::new("tar");
        tar.arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(folder.path()).arg("--numeric-owner");
        command::run_ok("unpacking the clean root (this case must run as root)", tar, Duration::from_secs(300), log)?;
        for file in COPIED {
            let target = folder.path().join(file.trim_start_matches('/'));
            let _link_or_old_file = std::fs::remove_file(&target);
            if Path::new(file).is_file() {
                std::fs::copy(file, &target).map_err(|e| format!("{file} cannot be copied into the clean root: {e}"))?;
            }
        }
        for dir in ["opt/rust", "root"] {
            std::fs::create_dir_all(folder.path().join(dir)).map_err(|e| format!("{dir} in the clean root: {e}"))?;
        }
        Ok(Self { folder, toolchain: toolchain(log)? })
    }

    /// A path inside, as seen from outside.
    #[must_use]
    pub fn outside(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    /// A program inside, in namespaces of its own. It sees the Rust toolchain read-only at `/opt/rust` and no cache of this machine.
    #[must_use]
    pub fn enter(&self, directory: &str, argv: &[&str]) -> Command {
        // The mounts vanish with the namespace. `--kill-child` takes everything inside along when unshare is killed. The inner shell stays
        // as the first process, so that orphans are reaped as on a real machine.
        let script = "set -e\n\
            root=$1 rust=$2 dir=$3; shift 3\n\
            mount --bind \"$root\" \"$root\"\n\
            mount --bind -o ro \"$rust\" \"$root/opt/rust\"\n\
            mount -t proc proc \"$root/proc\"\n\
            mount --rbind /dev \"$root/dev\"\n\
            mount -t tmpfs tmpfs \"$root/run\"\n\
            exec chroot \"$root\" /bin/sh -c 'cd \"$0\" && \"$@\"; exit $?' \"$dir\" \"$@\"";
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--ipc", "--uts", "/bin/sh", "-c", script, "sh"])
            .arg(self.folder.path())
            .arg(&self.toolchain)
            .arg(directory)
            .args(argv)
            .env_clear()
            .env("PATH", "/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root")
            .env("USER", "root")
            .env("TERM", "dumb");
        for name in PASSED_ON {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }
}

/// The folder of the Rust toolchain in use.
fn toolchain(log: &CaseLog) -> Result<PathBuf, String> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "sysroot"]);
    let printed = command::run_ok("asking for the Rust toolchain", rustc, Duration::from_secs(30), log)?;
    printed.output.first().map(PathBuf::from).ok_or_else(|| "rustc printed no folder".to_owned())
}

/// The archive of the minimal root, by release.
fn archive(places: &Places, log: &CaseLog) -> Result<PathBuf, String> {
    let release = std::fs::read_to_string("/etc/os-release").map_err(|e| format!("/etc/os-release: {e}"))?;
    let codename = release
        .lines()
        .find_map(|l| l.strip_prefix("VERSION_CODENAME="))
        .map(|c| c.trim_matches('"').to_owned())
        .ok_or("this machine's Debian release has no code name; run this case on Debian 12 or 13")?;
    let archive = places.cache.join(format!("cold-root-{codename}.tar"));
    if archive.is_file() {
        return Ok(archive);
    }
    let sources = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"]
        .into_iter()
        .find(|f| std::fs::read_to_string(f).is_ok_and(|t| t.contains(&codename)))
        .ok_or_else(|| format!("no package source for {codename} in /etc/apt"))?;
    let settings = acquire_settings(log)?;
    let options = tempfile::NamedTempFile::new().map_err(|e| format!("no temporary file: {e}"))?;
    std::fs::write(options.path(), &settings).map_err(|e| format!("{}: {e}", options.path().display()))?;
    let part = archive.with_extension("part.tar");
    let mut make = Command::new("mmdebstrap");
    make.args(["--mode=root", "--variant=minbase", &format!("--include={PACKAGES}")])
        .arg(format!("--aptopt={}", options.path().display()))
        .arg(&codename)
        .arg(&part)
        .arg(sources);
    command::run_ok("making a clean Debian root", make, Duration::from_secs(900), log)?;
    std::fs::rename(&part, &archive).map_err(|e| format!("{}: {e}", archive.display()))?;
    Ok(archive)
}

/// How this machine's apt fetches, as configuration lines.
fn acquire_settings(log: &CaseLog) -> Result<String, String> {
    let mut dump = Command::new("apt-config");
    dump.args(["dump", "Acquire"]);
    let dumped = command::run_ok("reading apt's settings", dump, Duration::from_secs(30), log)?;
    const FETCHING: [&str; 4] = ["Acquire::Check-", "Acquire::http", "Acquire::Retries", "Acquire::ForceIPv"];
    let wanted = |line: &&String| FETCHING.iter().any(|name| line.starts_with(name)) && !line.contains(" \"\";");
    Ok(dumped.output.iter().filter(wanted).map(|l| format!("{l}\n")).collect())
}
