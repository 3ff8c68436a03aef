//! The initrd: our own first program, the modules it loads in the order of their names, and the two tools it calls.
//!
//! In the test flavour it also holds a marker file that lets the command line carry further words. Nothing else is in it: no shell.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use warden_vm::BuilderRoot;

use crate::binaries::Binaries;
use crate::cli::{Flavour, Profile};
use crate::fault::{Done, Fault};
use crate::files;
use crate::modules;
use crate::newc::Archive;
use crate::steps::step;
use crate::stock::Kernel;
use crate::tool::{bytes, run};
use crate::workshop::Workshop;

/// Programs of the builder root that go along, with the places they look for themselves.
const TOOLS: [(&str, &str); 2] = [("/usr/sbin/veritysetup", "bin/veritysetup"), ("/usr/sbin/e2fsck", "bin/fsck.ext4")];

/// Builds `out/initrd`.
pub(crate) fn build(
    shop: &Workshop,
    builder: &BuilderRoot,
    profile: Profile,
    flavour: Flavour,
    kernel: &Kernel,
    binaries: &Binaries,
    out: &Path,
) -> Done<PathBuf> {
    let path = out.join("initrd");
    step("initrd", || {
        let mut archive = Archive::new(shop.recipe.epoch);
        for folder in ["bin", "dev", "etc", "m", "newroot", "proc", "run", "sys", "tmp", "usr"] {
            archive.folder(folder);
        }
        archive.device("dev/console", 5, 1);
        archive.device("dev/null", 1, 3);
        archive.file("init", true, &read(&binaries.init())?);
        if flavour == Flavour::Test {
            archive.file("etc/warden-test-flavour", false, b"");
        }
        add_modules(&mut archive, shop, builder, profile, kernel)?;
        add_tools(&mut archive, builder)?;
        let plain = out.join("initrd.cpio");
        files::write(&plain, archive.finish())?;
        files::remove(&path)?;
        run("zstd", builder.command("zstd", &[out]).args(["-10", "--quiet", "--rm"]).arg(&plain).arg("-o").arg(&path))?;
        Ok(path.clone())
    })
}

/// An initrd without a first program, for tests: the kernel starts and finds nobody to hand over to.
pub(crate) fn empty(shop: &Workshop, out: &Path) -> Done<PathBuf> {
    let path = out.join("initrd");
    let mut archive = Archive::new(shop.recipe.epoch);
    archive.folder("dev");
    files::write(&path, archive.finish())?;
    Ok(path)
}

/// Modules, uncompressed, because the kernel's loader takes them as they are; their signatures stay in place.
fn add_modules(archive: &mut Archive, shop: &Workshop, builder: &BuilderRoot, profile: Profile, kernel: &Kernel) -> Done {
    let dep = files::read(&kernel.modules.join("modules.dep"))?;
    let builtin = files::read(&kernel.modules.join("modules.builtin"))?;
    let order = modules::load_order(&dep, &builtin, &shop.recipe.kernel(profile)?.initrd)?;
    for (n, module) in order.iter().enumerate() {
        let path = kernel.modules.join(module);
        let content = if module.ends_with(".xz") { bytes("xz", builder.command("xz", &[&shop.cache]).arg("-dc").arg(&path))? } else { read(&path)? };
        archive.file(&format!("m/{:03}-{}.ko", n + 1, modules::name(module)), false, &content);
    }
    Ok(())
}

/// The tools with every library the loader would look for.
fn add_tools(archive: &mut Archive, builder: &BuilderRoot) -> Done {
    let mut libraries = BTreeSet::new();
    for (from, to) in TOOLS {
        archive.file(to, true, &read(&inside(builder, from))?);
        libraries.extend(libraries_of(builder, from)?);
    }
    let mut folders = BTreeSet::new();
    for library in &libraries {
        let name = library.trim_start_matches('/');
        let parents: Vec<&Path> = Path::new(name).ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
        for parent in parents.into_iter().rev() {
            let parent = parent.to_string_lossy().into_owned();
            if folders.insert(parent.clone()) && parent != "usr" {
                archive.folder(&parent);
            }
        }
        archive.file(name, true, &read(&inside(builder, library))?);
    }
    Ok(())
}

/// The libraries a program of the builder root needs, by the names under which it asks for them.
pub(crate) fn libraries_of(builder: &BuilderRoot, program: &str) -> Done<BTreeSet<String>> {
    let said = run("ldd", builder.command("ldd", &[]).arg(program))?;
    Ok(parse_ldd(&said))
}

/// Paths out of ldd's output; the virtual library of the kernel has none.
pub(crate) fn parse_ldd(said: &str) -> BTreeSet<String> {
    said.lines()
        .filter_map(|line| {
            let line = line.trim();
            let path = line.split_once("=> ").map_or(line, |(_, path)| path);
            path.starts_with('/').then(|| path.split_whitespace().next().unwrap_or_default().to_owned())
        })
        .collect()
}

/// A path of the builder root as seen from the host; links in it are relative to that root.
pub(crate) fn inside(builder: &BuilderRoot, path: &str) -> PathBuf {
    builder.dir().join(path.trim_start_matches('/'))
}

fn read(path: &Path) -> Done<Vec<u8>> {
    std::fs::read(path).map_err(Fault::io("cannot read", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_and_every_library_go_along_and_the_virtual_one_does_not() {
        let said = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let found: Vec<String> = parse_ldd(said).into_iter().collect();
        assert_eq!(found, ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
