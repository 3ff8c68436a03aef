//! `manifest.json` beside an image: what was built, from which packages, with which hashes and sizes.

use std::path::Path;

use serde::Serialize;

use crate::cli::{Flavour, Profile};
use crate::fault::{Done, Fault};
use crate::files;
use crate::lockfile::Lock;
use crate::seal::Sealed;

#[derive(Serialize)]
struct Manifest<'a> {
    format: u32,
    version: &'a str,
    flavour: &'a str,
    profile: &'a str,
    kernel: &'a str,
    roothash: &'a str,
    hashoffset: u64,
    files: Vec<Output>,
    packages: Vec<String>,
}

#[derive(Serialize)]
struct Output {
    name: &'static str,
    bytes: u64,
    sha256: Option<String>,
}

/// Writes the manifest. The disk is described by its parts: hashing its holes would take longer than building it.
pub(crate) fn write(out: &Path, version: &str, flavour: Flavour, profile: Profile, kernel: &str, sealed: &Sealed, lock: &Lock) -> Done {
    let mut outputs = Vec::new();
    for (name, hashed) in [("root.img", true), ("uki.efi", true), ("disk.img", false)] {
        let path = out.join(name);
        if path.is_file() {
            outputs.push(Output { name, bytes: files::length(&path)?, sha256: if hashed { Some(files::sha256(&path)?) } else { None } });
        }
    }
    let packages = lock.text().lines().filter(|line| line.starts_with("root ") || line.starts_with("kernel-")).map(str::to_owned).collect();
    let manifest = Manifest {
        format: 1,
        version,
        flavour: flavour.name(),
        profile: profile.name(),
        kernel,
        roothash: &sealed.root_hash,
        hashoffset: sealed.hash_offset,
        files: outputs,
        packages,
    };
    let text = serde_json::to_string_pretty(&manifest).map_err(|e| Fault::refused("manifest.json", e.to_string(), "report it"))?;
    files::write(&out.join("manifest.json"), text + "\n")
}
