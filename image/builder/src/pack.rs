//! An engine pack: the genuine engine and the libraries it needs as a GPT image with a squashfs root, its dm-verity tree and a signature
//! over the root hash. The appliance's system manager mounts it for one engine only, after checking the signature.
//!
//! Two more images are made for tests: the same pack without a signature, and the signed one with one byte changed. Both must be refused.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use warden_vm::BuilderRoot;

use crate::fault::{Done, Fault};
use crate::files;
use crate::gpt;
use crate::initrd::{inside, parse_ldd};
use crate::keys::{Keys, Purpose};
use crate::steps::step;
use crate::tool::run;
use crate::workshop::Workshop;

/// A finished pack file.
pub(crate) struct Pack {
    pub(crate) path: PathBuf,
    pub(crate) digest: String,
}

impl Pack {
    /// Its image and its description.
    pub(crate) fn files(&self) -> [PathBuf; 2] {
        [self.path.clone(), self.path.with_extension("json")]
    }

    /// The description.
    pub(crate) fn manifest(&self) -> Done<Manifest> {
        let path = self.path.with_extension("json");
        let said = |error: serde_json::Error| Fault::refused(path.display().to_string(), error.to_string(), "run `warden-image packs`");
        serde_json::from_str(&files::read(&path)?).map_err(said)
    }
}

/// What the agent reads beside a pack.
#[derive(Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) engine: String,
    pub(crate) version: String,
    digest: String,
}

/// The signed packs that were built, one per engine; built now when there are none, or when the engine in the cache is another version.
pub(crate) fn signed(shop: &Workshop, builder: &BuilderRoot, keys: &Keys) -> Done<Vec<Pack>> {
    let mut found = Vec::new();
    for path in files::walk(&shop.packs().join("signed")).unwrap_or_default() {
        if path.extension().is_some_and(|e| e == "raw") {
            let digest = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
            found.push(Pack { path, digest });
        }
    }
    let binary = engine_binary(shop, None);
    let current = |pack: &Pack| match (&binary, pack.manifest()) {
        (Ok(binary), Ok(manifest)) => manifest.version == engine_version(binary),
        (Err(_), manifest) => manifest.is_ok(),
        (Ok(_), Err(_)) => false,
    };
    if !found.is_empty() && found.iter().all(current) {
        return Ok(found);
    }
    let binary = binary?;
    let binary = binary.canonicalize().map_err(Fault::io("no such engine", &binary))?;
    let [signed, ..] = build(shop, builder, keys, &binary)?;
    Ok(vec![signed])
}

/// The engine's binary: given, or the newest in the cache.
pub(crate) fn engine_binary(shop: &Workshop, given: Option<PathBuf>) -> Done<PathBuf> {
    if let Some(path) = given {
        return Ok(path);
    }
    let dir = shop.cache.join("engines");
    let mut found: Vec<PathBuf> = std::fs::read_dir(&dir)
        .map(|entries| entries.flatten().map(|e| e.path().join("llama-server")).filter(|p| p.is_file()).collect())
        .unwrap_or_default();
    found.sort();
    found
        .pop()
        .ok_or_else(|| Fault::refused(dir.display().to_string(), "no llama-server was built yet", "run `make engine`, or name one with --engine"))
}

/// The version in the name of the folder that holds the binary (`llama.cpp-b11434-…`).
pub(crate) fn engine_version(binary: &Path) -> String {
    let folder = binary.parent().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    folder.split('-').nth(1).filter(|v| v.starts_with('b')).unwrap_or("unknown").to_owned()
}

/// Makes the pack and its two test twins: `packs/{signed,unsigned,flipped}/<digest>.raw` with `<digest>.json`.
pub(crate) fn build(shop: &Workshop, builder: &BuilderRoot, keys: &Keys, binary: &Path) -> Done<[Pack; 3]> {
    let out = shop.packs();
    files::fresh_dir(&out)?;
    let tree = out.join("tree");
    let version = engine_version(binary);
    step("pack: tree", || fill(shop, builder, binary, &version, &tree))?;
    let signed = out.join("signed.img");
    let unsigned = out.join("unsigned.img");
    step("pack: signed image", || image(builder, &tree, &out, Some(keys), &signed))?;
    step("pack: unsigned image", || image(builder, &tree, &out, None, &unsigned))?;
    let flipped = out.join("flipped.img");
    step("pack: one byte flipped", || {
        std::fs::copy(&signed, &flipped).map_err(Fault::io("cannot copy", &signed))?;
        flip_byte(&flipped, None)
    })?;
    Ok([file(&out, "signed", &signed, &version)?, file(&out, "unsigned", &unsigned, &version)?, file(&out, "flipped", &flipped, &version)?])
}

/// The pack's root: the engine, the libraries it asks for, and the mount points the engine unit needs.
fn fill(shop: &Workshop, builder: &BuilderRoot, binary: &Path, version: &str, tree: &Path) -> Done {
    files::fresh_dir(tree)?;
    files::mode(tree, 0o755)?;
    let folders = [
        ".warden/specs",
        "data/models",
        "dev",
        "engine/bin",
        "engine/lib",
        "etc",
        "media",
        "proc",
        "run/warden-engine",
        "sys",
        "tmp",
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "usr/sbin",
        "var/tmp",
        "root",
        "home",
    ];
    for folder in folders {
        files::make_dir(&tree.join(folder))?;
    }
    for (link, target) in [("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("sbin", "usr/sbin")] {
        std::os::unix::fs::symlink(target, tree.join(link)).map_err(Fault::io("cannot link", tree.join(link)))?;
    }
    files::write(&tree.join(".warden/launch"), "")?;
    files::mode(&tree.join(".warden/launch"), 0o755)?;
    files::copy(binary, &tree.join("engine/bin/llama-server"), 0o755)?;
    files::write(
        &tree.join("usr/lib/os-release"),
        format!("ID=lm-warden-pack\nNAME=\"LM Warden engine pack\"\nPRETTY_NAME=\"llama.cpp {version}\"\nVERSION_ID={version}\n"),
    )?;
    std::os::unix::fs::symlink("../usr/lib/os-release", tree.join("etc/os-release"))
        .map_err(Fault::io("cannot link", tree.join("etc/os-release")))?;
    // A resolver file to bind over would need a network; the empty one only keeps the C library quiet.
    files::write(&tree.join("etc/passwd"), "root:x:0:0:root:/root:/nonexistent\nnobody:x:65534:65534:nobody:/nonexistent:/nonexistent\n")?;
    files::write(&tree.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;
    for name in ["LICENSE", "LICENSE.txt"] {
        let licence = binary.with_file_name(name);
        if licence.is_file() {
            files::copy(&licence, &tree.join("engine/LICENSE"), 0o644)?;
        }
    }
    let mut command = builder.command("ldd", &[binary.parent().unwrap_or(&shop.cache)]);
    let said = run("ldd", command.arg(binary))?;
    if let Some(missing) = said.lines().find(|line| line.contains("not found")) {
        return Err(Fault::refused(
            binary.display().to_string(),
            format!("a library is missing: {}", missing.trim()),
            "add its package to the builder's list in image/recipe.toml",
        ));
    }
    for library in parse_ldd(&said) {
        let name = library.trim_start_matches('/');
        let name = if name.starts_with("lib") { format!("usr/{name}") } else { name.to_owned() };
        files::copy(&inside(builder, &library), &tree.join(name), 0o755)?;
    }
    Ok(())
}

/// Writes the GPT image; with keys also the partition that carries the signature.
fn image(builder: &BuilderRoot, tree: &Path, out: &Path, keys: Option<&Keys>, to: &Path) -> Done {
    let definitions = out.join("repart.d");
    files::fresh_dir(&definitions)?;
    files::write(
        &definitions.join("10-root.conf"),
        format!(
            "[Partition]\nType=root-x86-64\nFormat=squashfs\nCompression=zstd\nCompressionLevel=3\nCopyFiles={}:/\nVerity=data\nVerityMatchKey=root\nMinimize=best\n",
            tree.display()
        ),
    )?;
    files::write(&definitions.join("20-verity.conf"), "[Partition]\nType=root-x86-64-verity\nVerity=hash\nVerityMatchKey=root\nMinimize=best\n")?;
    let mut binds = vec![out];
    if let Some(keys) = keys {
        files::write(&definitions.join("30-signature.conf"), "[Partition]\nType=root-x86-64-verity-sig\nVerity=signature\nVerityMatchKey=root\n")?;
        binds.push(keys.dir());
    }
    let mut command = builder.command("systemd-repart", &binds);
    command
        .args(["--offline=yes", "--sector-size=512", "--empty=create", "--size=auto", "--dry-run=no", "--seed=random"])
        .arg(format!("--definitions={}", definitions.display()));
    if let Some(keys) = keys {
        command.arg(format!("--private-key={}", keys.key(Purpose::Packs).display()));
        command.arg(format!("--certificate={}", keys.certificate(Purpose::Packs).display()));
    }
    run("systemd-repart", command.arg(to)).map(drop)
}

/// Changes one bit of a pack: at `offset`, or else inside the first block of its root, which is read by every mount.
pub(crate) fn flip_byte(image: &Path, offset: Option<u64>) -> Done {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(image).map_err(Fault::io("cannot open", image))?;
    let at = match offset {
        Some(offset) => offset,
        None => {
            let mut head = vec![0u8; gpt::HEAD];
            file.read_exact_at(&mut head, 0).map_err(Fault::io("cannot read", image))?;
            let start = gpt::first_partition(&head).ok_or_else(|| {
                Fault::refused(image.display().to_string(), "it has no partition table", "name a pack made by `warden-image packs`")
            })?;
            // Behind the squashfs superblock, in the same block: the file system is still recognised, the block no longer verifies.
            start + 128
        }
    };
    let mut byte = [0u8];
    file.read_exact_at(&mut byte, at).map_err(Fault::io("cannot read", image))?;
    file.write_all_at(&[byte[0] ^ 1], at).map_err(Fault::io("cannot write", image))
}

/// Moves an image to the name the appliance expects and writes its manifest.
fn file(out: &Path, kind: &str, image: &Path, version: &str) -> Done<Pack> {
    let digest = files::sha256(image)?;
    let path = out.join(kind).join(format!("{digest}.raw"));
    files::make_dir(&out.join(kind))?;
    std::fs::rename(image, &path).map_err(Fault::io("cannot move", image))?;
    let manifest = Manifest { engine: "llama.cpp".to_owned(), version: version.to_owned(), digest: digest.clone() };
    let text = serde_json::to_string_pretty(&manifest).map_err(|e| Fault::refused("pack manifest", e.to_string(), "report it"))?;
    files::write(&path.with_extension("json"), text + "\n")?;
    Ok(Pack { path, digest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_version_on_the_page_is_that_of_the_build() {
        assert_eq!(engine_version(Path::new("/c/engines/llama.cpp-b11434-1d6f/llama-server")), "b11434");
        assert_eq!(engine_version(Path::new("/opt/x/llama-server")), "unknown");
    }

    #[test]
    fn a_flipped_byte_changes_exactly_one_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, [0u8; 64]).unwrap();
        flip_byte(&path, Some(10)).unwrap();
        let after = std::fs::read(&path).unwrap();
        assert_eq!(after.iter().filter(|b| **b != 0).count(), 1);
    }
}
