//! The trees that change rarely, cached outside the project: builder root, pruned base root, kernel.
//!
//! Each is kept under a key of what it was made from, with a `.packages` file beside it that the lock is compared with. The base
//! root's and the kernel's key hold the dates of the suite, so that a security update arrives with the next build.

use std::path::{Path, PathBuf};

use warden_vm::BuilderRoot;

use crate::apt::Apt;
use crate::bootstrap::{Depth, tree};
use crate::cli::Profile;
use crate::debs::{Debs, installed};
use crate::fault::{Done, Fault};
use crate::files;
use crate::lockfile::Lock;
use crate::prune;
use crate::steps::step;
use crate::tool::run;
use crate::workshop::Workshop;

/// A kernel ready to be put into an image.
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    pub(crate) modules: PathBuf,
    pub(crate) release: String,
}

/// Access to the cached trees; makes what is missing.
pub(crate) struct Stock<'a> {
    shop: &'a Workshop,
    apt: Apt,
    debs: Debs,
    dates: String,
    lock: Lock,
}

impl<'a> Stock<'a> {
    pub(crate) fn open(shop: &'a Workshop) -> Done<Self> {
        let apt = Apt::of_host()?;
        let dates = apt.suite_dates(&shop.recipe, &shop.cache)?.unwrap_or_default();
        Ok(Self { apt, debs: Debs::open(&shop.cache)?, dates, lock: Lock::default(), shop })
    }

    /// The packages of everything that was taken so far.
    pub(crate) fn lock(&self) -> &Lock {
        &self.lock
    }

    /// The builder root. Its tools follow the recipe, not the date: `lock` renews it.
    pub(crate) fn builder(&mut self) -> Done<BuilderRoot> {
        let packages = &self.shop.recipe.builder.packages;
        let dir = self.place("builder", packages.iter());
        if !dir.exists() {
            step("builder root", || {
                tree(&self.apt, &self.debs, &self.shop.recipe, packages, Depth::Installed, &dir)?;
                self.record(&dir, "builder", &installed(&files::read(&dir.join("var/lib/dpkg/status"))?))
            })?;
            self.forget_others(&dir)?;
        }
        self.take(&dir)?;
        Ok(BuilderRoot::at(dir))
    }

    /// The base root, already without what the appliance must not have. The tree as installed is kept too, so that a changed
    /// list of removals costs seconds.
    pub(crate) fn base(&mut self) -> Done<PathBuf> {
        let root = &self.shop.recipe.root;
        let dated = [self.dates.clone()];
        let raw = self.place("root-installed", root.packages.iter().chain(&dated));
        if !raw.exists() {
            step("base root from packages", || {
                tree(&self.apt, &self.debs, &self.shop.recipe, &root.packages, Depth::Installed, &raw)?;
                self.record(&raw, "root", &installed(&files::read(&raw.join("var/lib/dpkg/status"))?))
            })?;
            self.forget_others(&raw)?;
        }
        self.take(&raw)?;
        let dir = self.place("root", root.packages.iter().chain(&dated).chain(&root.prune).chain(&root.remove));
        if !dir.exists() {
            step("base root without shell and package tools", || {
                let growing = dir.with_extension("new");
                files::fresh_dir(&growing)?;
                files::copy_tree(&raw, &growing)?;
                prune::prune(&growing, root)?;
                std::fs::rename(&growing, &dir).map_err(Fault::io("cannot put in place", &growing))
            })?;
            self.forget_others(&dir)?;
        }
        Ok(dir)
    }

    /// The kernel of a profile.
    pub(crate) fn kernel(&mut self, profile: Profile, builder: &BuilderRoot) -> Done<Kernel> {
        let wanted = self.shop.recipe.kernel(profile)?;
        let place = format!("kernel-{}", profile.name());
        let dated = [wanted.package.clone(), self.dates.clone()];
        let dir = self.place(&place, wanted.drop.iter().chain(&dated));
        if !dir.exists() {
            step(&format!("kernel {}", wanted.package), || {
                let raw = dir.with_extension("raw");
                tree(&self.apt, &self.debs, &self.shop.recipe, std::slice::from_ref(&wanted.package), Depth::Unpacked, &raw)?;
                self.keep_kernel(&raw, &dir, &place, &wanted.drop, builder)
            })?;
            self.forget_others(&dir)?;
        }
        self.take(&dir)?;
        let release = only_entry(&dir.join("modules"))?;
        Ok(Kernel { image: dir.join("vmlinuz"), modules: dir.join("modules").join(&release), release })
    }

    /// Keeps kernel and modules of an unpacked tree and indexes the modules.
    fn keep_kernel(&self, raw: &Path, dir: &Path, set: &str, drop: &[String], builder: &BuilderRoot) -> Done {
        let growing = dir.with_extension("new");
        files::fresh_dir(&growing)?;
        let release = only_entry(&raw.join("usr/lib/modules"))?;
        files::copy_tree(&raw.join("usr/lib/modules"), &growing.join("modules"))?;
        files::copy(&raw.join(format!("boot/vmlinuz-{release}")), &growing.join("vmlinuz"), 0o644)?;
        for folder in drop {
            files::remove(&growing.join("modules").join(&release).join("kernel").join(folder))?;
        }
        files::make_dir(&growing.join("usr/lib"))?;
        std::os::unix::fs::symlink("../../modules", growing.join("usr/lib/modules")).map_err(Fault::io("cannot link", &growing))?;
        std::os::unix::fs::symlink("usr/lib", growing.join("lib")).map_err(Fault::io("cannot link", &growing))?;
        run("depmod", builder.command("depmod", &[&self.shop.cache]).arg("--basedir").arg(&growing).arg(&release))?;
        let package = format!("linux-image-{release}");
        let version = self.debs.version_of(&package)?.unwrap_or_else(|| release.clone());
        self.record(dir, set, &[(package, version)])?;
        files::remove(raw)?;
        files::remove(dir)?;
        std::fs::rename(&growing, dir).map_err(Fault::io("cannot put in place", &growing))
    }

    fn place(&self, kind: &str, words: impl Iterator<Item = impl AsRef<str>>) -> PathBuf {
        self.shop.cache.join(kind).join(files::key(words))
    }

    fn record(&self, dir: &Path, set: &str, packages: &[(String, String)]) -> Done {
        let mut lock = Lock::default();
        *lock.set(set) = self.debs.pins(packages)?;
        files::write(&dir.with_extension("packages"), lock.text())
    }

    fn take(&mut self, dir: &Path) -> Done {
        self.lock.replace_sets(Lock::parse(&files::read(&dir.with_extension("packages"))?));
        Ok(())
    }

    /// Older trees of the same kind are of no use: the archive has moved on.
    fn forget_others(&self, dir: &Path) -> Done {
        let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return Ok(()) };
        let name = name.to_string_lossy();
        for entry in std::fs::read_dir(parent).map_err(Fault::io("cannot list", parent))?.flatten() {
            if !entry.file_name().to_string_lossy().starts_with(&*name) {
                files::remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

fn only_entry(dir: &Path) -> Done<String> {
    let mut entries = std::fs::read_dir(dir).map_err(Fault::io("cannot list", dir))?.flatten();
    match (entries.next(), entries.next()) {
        (Some(entry), None) => Ok(entry.file_name().to_string_lossy().into_owned()),
        _ => Err(Fault::refused(dir.display().to_string(), "there is not exactly one kernel in it", "remove the cache folder and build again")),
    }
}
