//! The static check of a root tree: what a production appliance must not contain, and by what the test flavour may differ.
//!
//! In goes a tree; out come findings, one sentence each. Nothing is changed, nothing is run.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::cli::Flavour;
use crate::fault::{Done, Fault};
use crate::files;
use crate::rootfs::TEST_DIR;

/// Programs by which somebody gets a command line, a log-in or a package tool, whatever folder they are in.
const FORBIDDEN: [(&str, &str); 43] = [
    ("sh", "a shell"),
    ("bash", "a shell"),
    ("rbash", "a shell"),
    ("dash", "a shell"),
    ("ash", "a shell"),
    ("zsh", "a shell"),
    ("ksh", "a shell"),
    ("mksh", "a shell"),
    ("fish", "a shell"),
    ("csh", "a shell"),
    ("tcsh", "a shell"),
    ("busybox", "a shell"),
    ("toybox", "a shell"),
    ("nologin", "a log-in program"),
    ("login", "a log-in program"),
    ("su", "a log-in program"),
    ("sudo", "a log-in program"),
    ("runuser", "a log-in program"),
    ("sulogin", "a log-in program"),
    ("agetty", "a getty"),
    ("getty", "a getty"),
    ("mgetty", "a getty"),
    ("fgetty", "a getty"),
    ("sshd", "an ssh server"),
    ("sshd-session", "an ssh server"),
    ("dropbear", "an ssh server"),
    ("ssh", "an ssh client"),
    ("ssh-keygen", "an ssh tool"),
    ("telnetd", "a log-in server"),
    ("apt", "a package tool"),
    ("apt-get", "a package tool"),
    ("dpkg", "a package tool"),
    ("dpkg-deb", "a package tool"),
    ("perl", "an interpreter"),
    ("python3", "an interpreter"),
    ("awk", "an interpreter"),
    ("mawk", "an interpreter"),
    ("gawk", "an interpreter"),
    ("lua", "an interpreter"),
    ("pkexec", "a way to root"),
    ("run0", "a way to root"),
    ("systemd-run", "a way to start anything"),
    ("debug-shell.service", "a debug shell"),
];

/// What is wrong with a root of that flavour. The test directory is left out of the test flavour's check: it is the difference.
pub(crate) fn findings(root: &Path, flavour: Flavour) -> Done<Vec<String>> {
    let mut found = Vec::new();
    for path in files::walk(root)? {
        let name = path.strip_prefix(root).unwrap_or(&path);
        if flavour == Flavour::Test && name.starts_with(TEST_DIR) {
            continue;
        }
        let meta = path.symlink_metadata().map_err(Fault::io("cannot look at", &path))?;
        let head = if meta.is_file() { head(&path)? } else { Vec::new() };
        found.extend(about(&name.to_string_lossy(), &meta, &head));
    }
    if flavour == Flavour::Production && root.join(TEST_DIR).exists() {
        found.push(format!("/{TEST_DIR} is there: this is the test flavour"));
    }
    Ok(found)
}

/// The first part of a file; long enough for a key's first line after some text.
fn head(path: &Path) -> Done<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(Fault::io("cannot read", path))?;
    file.take(64 * 1024).read_to_end(&mut bytes).map_err(Fault::io("cannot read", path))?;
    Ok(bytes)
}

fn about(name: &str, meta: &std::fs::Metadata, head: &[u8]) -> Vec<String> {
    judge(name, meta.is_dir(), meta.is_file().then(|| meta.permissions().mode()), head)
}

/// Judges one path. `file_mode` is that of a regular file, nothing for folders and links.
fn judge(name: &str, folder: bool, file_mode: Option<u32>, head: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let last = name.rsplit('/').next().unwrap_or(name);
    if let (false, Some((_, what))) = (folder, FORBIDDEN.iter().find(|(forbidden, _)| *forbidden == last)) {
        // Shell completions and the like may carry the name of a program; only what could be run or points to it counts.
        if file_mode.is_none_or(|mode| mode & 0o111 != 0) || last.ends_with(".service") {
            found.push(format!("/{name} is {what}"));
        }
    }
    if last.contains("getty") && name.contains("systemd") {
        found.push(format!("/{name} belongs to a getty"));
    }
    if let Some(mode) = file_mode {
        if mode & 0o4000 != 0 {
            found.push(format!("/{name} has the setuid bit"));
        }
        if mode & 0o2000 != 0 {
            found.push(format!("/{name} has the setgid bit"));
        }
        let marker = b"PRIVATE KEY-----";
        let text = !head.starts_with(b"\x7fELF") && head.windows(marker.len()).any(|window| window == marker);
        if text {
            found.push(format!("/{name} holds a private key"));
        }
    }
    if ["etc/apt", "var/lib/dpkg", "etc/apt/sources.list"].contains(&name) {
        found.push(format!("/{name} is a trace of package management"));
    }
    found
}

/// How the test flavour differs from production outside its own directory; nothing if it is exactly that directory.
pub(crate) fn differences(production: &Path, test: &Path) -> Done<Vec<String>> {
    let (left, right) = (index(production)?, index(test)?);
    let mut found = Vec::new();
    for (name, entry) in &left {
        match right.get(name) {
            None => found.push(format!("/{name} is missing in the test flavour")),
            Some(other) if other != entry => found.push(format!("/{name} differs in the test flavour")),
            Some(_) => {}
        }
    }
    found.extend(
        right
            .keys()
            .filter(|name| !left.contains_key(*name) && !Path::new(name).starts_with(TEST_DIR))
            .map(|name| format!("/{name} is only in the test flavour")),
    );
    if !right.contains_key(TEST_DIR) {
        found.push(format!("/{TEST_DIR} is missing: this is no test flavour"));
    }
    Ok(found)
}

/// Kind, mode, owner and content of everything below a tree. Sizes of folders say nothing and are left out.
fn index(root: &Path) -> Done<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for path in files::walk(root)? {
        let meta = path.symlink_metadata().map_err(Fault::io("cannot look at", &path))?;
        let content = if meta.is_symlink() {
            std::fs::read_link(&path).map_err(Fault::io("cannot read the link", &path))?.display().to_string()
        } else if meta.is_file() {
            files::sha256(&path)?
        } else {
            String::new()
        };
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        all.insert(name, format!("{:o} {} {} {content}", meta.mode(), meta.uid(), meta.gid()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(name: &str, mode: Option<u32>, head: &[u8]) -> Vec<String> {
        judge(name, false, mode, head)
    }

    #[test]
    fn a_shell_is_found_under_every_name_and_as_a_link() {
        assert_eq!(judged("usr/bin/bash", Some(0o100755), b"\x7fELF").len(), 1);
        assert_eq!(judged("usr/bin/sh", None, b"").len(), 1);
        assert_eq!(judged("usr/lib/x/busybox", Some(0o100755), b"\x7fELF").len(), 1);
    }

    #[test]
    fn a_setuid_program_and_a_private_key_are_found() {
        assert_eq!(judged("usr/bin/x", Some(0o104755), b"")[0], "/usr/bin/x has the setuid bit");
        assert_eq!(judged("usr/sbin/x", Some(0o102755), b"")[0], "/usr/sbin/x has the setgid bit");
        assert_eq!(judged("etc/x.pem", Some(0o100600), b"text\n-----BEGIN PRIVATE KEY-----\n").len(), 1);
    }

    #[test]
    fn a_library_that_knows_how_keys_look_is_no_key() {
        assert!(judged("usr/lib/libcrypto.so.3", Some(0o100644), b"\x7fELF...BEGIN PRIVATE KEY-----").is_empty());
    }

    #[test]
    fn one_more_file_outside_the_test_directory_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let (production, test) = (dir.path().join("p"), dir.path().join("t"));
        for root in [&production, &test] {
            files::write(&root.join("usr/lib/x"), "x").unwrap();
        }
        files::write(&test.join(TEST_DIR).join("bin/busybox"), "b").unwrap();
        assert!(differences(&production, &test).unwrap().is_empty());
        files::write(&test.join("etc/extra"), "x").unwrap();
        files::write(&test.join("usr/lib/x"), "y").unwrap();
        assert_eq!(differences(&production, &test).unwrap().len(), 3);
    }
}
