//! `image/packages.lock`: which version of which package, by hash, each part of the build was made from.
//!
//! One line a package: set, name, version, SHA-256. In go two of them; out comes what changed. Never fetches anything.

use std::collections::BTreeMap;

/// Versions and hashes by set and package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Lock {
    sets: BTreeMap<String, BTreeMap<String, Pin>>,
}

/// One package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) version: String,
    pub(crate) sha256: String,
}

const HEAD: &str = "# Debian packages of the image: set, name, version, SHA-256. Written by `warden-image lock`.\n";

impl Lock {
    /// Reads the file's text; lines that are not understood are left out and so show up as a difference.
    pub(crate) fn parse(text: &str) -> Self {
        let mut lock = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let [set, name, version, sha256] = line.split_whitespace().collect::<Vec<_>>()[..] {
                lock.set(set).insert(name.into(), Pin { version: version.into(), sha256: sha256.into() });
            }
        }
        lock
    }

    /// The file's text.
    pub(crate) fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (set, pins) in &self.sets {
            for (name, pin) in pins {
                text.push_str(&format!("{set} {name} {} {}\n", pin.version, pin.sha256));
            }
        }
        text
    }

    /// The packages of a set, made if it is not there.
    pub(crate) fn set(&mut self, set: &str) -> &mut BTreeMap<String, Pin> {
        self.sets.entry(set.into()).or_default()
    }

    /// Puts another lock's sets over this one's.
    pub(crate) fn replace_sets(&mut self, other: Lock) {
        self.sets.extend(other.sets);
    }

    /// How `now` differs from what is locked, one line a package; sets that `now` does not have are not compared.
    pub(crate) fn differences(&self, now: &Lock) -> Vec<String> {
        let none = BTreeMap::new();
        let mut lines = Vec::new();
        for (set, new) in &now.sets {
            let old = self.sets.get(set).unwrap_or(&none);
            for (name, pin) in new {
                match old.get(name) {
                    None => lines.push(format!("{set}: {name} {} is new", pin.version)),
                    Some(was) if was.version != pin.version => lines.push(format!("{set}: {name} {} -> {}", was.version, pin.version)),
                    Some(was) if was.sha256 != pin.sha256 => lines.push(format!("{set}: {name} {} has other bytes", pin.version)),
                    Some(_) => {}
                }
            }
            lines.extend(old.keys().filter(|name| !new.contains_key(*name)).map(|name| format!("{set}: {name} is gone")));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_engineer_sees_each_kind_of_drift() {
        let old = Lock::parse("root a 1 aa\nroot b 1 bb\nroot c 1 cc\nbuilder x 1 xx\n");
        let now = Lock::parse("root a 2 a2\nroot b 1 other\nroot d 1 dd\n");
        assert_eq!(old.differences(&now), ["root: a 1 -> 2", "root: b 1 has other bytes", "root: d 1 is new", "root: c is gone"]);
    }

    #[test]
    fn the_text_can_be_read_back() {
        let lock = Lock::parse("root a 1 aa\nbuilder x 1:2-3 xx\n");
        assert_eq!(Lock::parse(&lock.text()), lock);
    }
}
