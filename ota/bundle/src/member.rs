//! The names a bundle or channel folder may hold, and nothing else.

use std::fmt;

use warden_trust::{Digest, Document, Kind, Release};

/// One file of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// `metadata/root.<version>.json`
    Root(u64),
    /// `metadata/timestamp.json`
    Timestamp,
    /// `metadata/release.<version>.json`
    Release(u64),
    /// `targets/<sha256>`
    Target(Digest),
}

impl Member {
    /// Reads a name; `None` when it is none of a bundle, or written in another way than [`Member`] displays.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let numbered = |text: &str, stem: &str| text.strip_prefix(stem)?.strip_suffix(".json")?.parse::<u64>().ok();
        let member = match name.split_once('/')? {
            ("metadata", "timestamp.json") => Self::Timestamp,
            ("metadata", file) => numbered(file, "root.").map(Self::Root).or_else(|| numbered(file, "release.").map(Self::Release))?,
            ("targets", file) => Self::Target(file.parse().ok()?),
            _ => return None,
        };
        (member.to_string() == name).then_some(member)
    }

    /// Which signed file it is; `None` for a target.
    #[must_use]
    pub const fn document(&self) -> Option<Document> {
        match self {
            Self::Root(_) => Some(Document::Root),
            Self::Timestamp => Some(Document::Timestamp),
            Self::Release(_) => Some(Document::Release),
            Self::Target(_) => None,
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(version) => write!(f, "metadata/root.{version}.json"),
            Self::Timestamp => f.write_str("metadata/timestamp.json"),
            Self::Release(version) => write!(f, "metadata/release.{version}.json"),
            Self::Target(digest) => write!(f, "targets/{digest}"),
        }
    }
}

/// The targets of a release in the order a box needs them: drivers and engine packs before the OS that will want them, models last.
#[must_use]
pub fn in_order_of_need(release: &Release) -> Vec<Digest> {
    let rank = |kind: Kind| match kind {
        Kind::Driver => 0,
        Kind::Engine => 1,
        Kind::Os => 2,
        Kind::Model => 3,
    };
    let mut entries: Vec<_> = release.entries.iter().collect();
    entries.sort_by_key(|e| rank(e.kind));
    entries.into_iter().map(|e| e.sha256).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_names_of_the_layout_are_read() {
        for good in ["metadata/root.1.json", "metadata/timestamp.json", "metadata/release.42.json"] {
            assert_eq!(Member::parse(good).unwrap().to_string(), good);
        }
        let digest = "0".repeat(64);
        let bad = [
            "",
            "metadata",
            "metadata/",
            "metadata/root.01.json",
            "metadata/root.+1.json",
            "metadata/root.json",
            "/metadata/timestamp.json",
            "./metadata/timestamp.json",
            "metadata//timestamp.json",
            "metadata/../timestamp.json",
            "targets/../../etc/passwd",
            "targets/x",
            "metadata/timestamp.json/",
            "Metadata/timestamp.json",
        ];
        for bad in
            bad.iter().map(|b| (*b).to_owned()).chain([format!("targets/{digest}/x"), format!("targets/{digest}0"), format!("targets/./{digest}")])
        {
            assert!(Member::parse(&bad).is_none(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_read_stays_within_two_folders(name in "(metadata|targets)?[./]{0,3}[a-z0-9./\\\\-]{0,70}") {
            if let Some(member) = Member::parse(&name) {
                let text = member.to_string();
                prop_assert!(!text.contains("..") && text.matches('/').count() == 1 && !text.starts_with('/'));
            }
        }
    }
}
