//! The verbs: which steps they are made of, in which order.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::binaries::Binaries;
use crate::cli::{BuildArgs, BundleArgs, CheckArgs, Flavour, PackArgs, Profile, StickArgs};
use crate::fault::{Done, Fault};
use crate::keys::Keys;
use crate::lockfile::Lock;
use crate::rootfs::{self, Parts};
use crate::seal::{Sealed, seal};
use crate::steps::{note, step};
use crate::stock::{Kernel, Stock};
use crate::trust::Trust;
use crate::uki::{self, BootFiles, Ingredients};
use crate::workshop::Workshop;
use crate::{audit, bundle, burn, data, disk, files, initrd, manifest, pack, stick};

/// What `root` leaves for the steps after it.
struct Built {
    root: PathBuf,
    kernel: Kernel,
    binaries: Binaries,
    keys: Keys,
    builder: warden_vm::BuilderRoot,
    lock: Lock,
}

/// Builds the root tree and checks it.
pub(crate) fn root(shop: &Workshop, args: &BuildArgs) -> Done {
    make_root(shop, args, &shop.out(args.flavour, args.profile)).map(drop)
}

/// The keys a build uses, and the root of the update metadata. A release refuses a developer's.
fn open_keys(shop: &Workshop, args: &BuildArgs, builder: &warden_vm::BuilderRoot) -> Done<(Keys, Trust)> {
    let keys = match &args.keys {
        Some(dir) => Keys::given(dir.clone())?,
        None => Keys::open(shop.keys(), builder)?,
    };
    let trust = Trust::open(&keys, shop.recipe.epoch, args.keys.is_none())?;
    if args.release && args.flavour == Flavour::Production {
        keys.refuse_development(builder)?;
        trust.refuse_development()?;
    }
    Ok((keys, trust))
}

fn make_root(shop: &Workshop, args: &BuildArgs, out: &Path) -> Done<Built> {
    let mut stock = Stock::open(shop)?;
    let builder = stock.builder()?;
    let base = stock.base()?;
    let kernel = stock.kernel(args.profile, &builder)?;
    compare_with_lock(shop, stock.lock(), args.release)?;
    let (keys, trust) = open_keys(shop, args, &builder)?;
    let binaries = Binaries::make(shop, args.as_they_are)?;
    let root = out.join("root");
    let parts = Parts {
        base: &base,
        kernel: &kernel,
        binaries: &binaries,
        keys: &keys,
        builder: &builder,
        profile: args.profile,
        version: version(shop, args),
        trust: &trust,
        overlays: &args.overlay,
    };
    rootfs::build(shop, args.flavour, &parts, &root)?;
    step("root: static check", || refuse_findings(audit::findings(&root, args.flavour)?))?;
    let lock = stock.lock().clone();
    Ok(Built { root, kernel, binaries, keys, builder, lock })
}

/// The version a build carries.
fn version<'a>(shop: &Workshop, args: &'a BuildArgs) -> &'a str {
    args.version.as_deref().unwrap_or(shop.version())
}

/// What disks and sticks are put together from.
struct Whole {
    built: Built,
    sealed: Sealed,
    boot: BootFiles,
    out: PathBuf,
}

fn make_parts(shop: &Workshop, args: &BuildArgs, out: PathBuf, bad_kernel: bool) -> Done<Whole> {
    files::make_dir(&out)?;
    let built = make_root(shop, args, &out)?;
    let sealed = seal(shop, &built.builder, &built.root, &out, args.release)?;
    let mut initrd = initrd::build(shop, &built.builder, args.profile, args.flavour, &built.kernel, &built.binaries, &out)?;
    if bad_kernel {
        initrd = initrd::empty(shop, &out)?;
    }
    let ingredients = Ingredients {
        builder: &built.builder,
        keys: &built.keys,
        kernel: &built.kernel,
        cache: &shop.cache,
        initrd: &initrd,
        root: &built.root,
        sealed: &sealed,
        profile: args.profile,
    };
    let boot = uki::build(&ingredients, args.flavour, &out)?;
    Ok(Whole { built, sealed, boot, out })
}

/// Builds a stick that installs what it is made of; with a device, writes it there.
pub(crate) fn stick(shop: &Workshop, args: &StickArgs) -> Done {
    let start = Instant::now();
    let Whole { built, sealed, boot, out } = make_parts(shop, &args.build, shop.out(args.build.flavour, args.build.profile), false)?;
    let packs = if args.without_pack { Vec::new() } else { pack::signed(shop, &built.builder, &built.keys)? };
    let stick =
        stick::build(shop, &stick::Ingredients { builder: &built.builder, keys: &built.keys, sealed: &sealed, boot: &boot, packs: &packs }, &out)?;
    note(&format!("{} in {:.1} s", stick.strip_prefix(&shop.project).unwrap_or(&stick).display(), start.elapsed().as_secs_f64()));
    match &args.device {
        Some(device) => burn::burn(&burn::Places::default(), &stick, device, &mut std::io::stdin().lock()),
        None => Ok(()),
    }
}

/// Builds everything up to the disk.
pub(crate) fn image(shop: &Workshop, args: &BuildArgs) -> Done {
    let start = Instant::now();
    let Whole { built, sealed, boot, out } = make_parts(shop, args, shop.out(args.flavour, args.profile), false)?;
    let tree = out.join("data");
    let packs = if args.with_pack || args.with_stick { pack::signed(shop, &built.builder, &built.keys)? } else { Vec::new() };
    data::fill(&tree, &built.root, if args.with_pack { &packs } else { &[] }, args.seed_data.as_deref())?;
    disk::build(shop, &built.builder, args.profile, &sealed, &boot, Some(&tree), &out)?;
    if args.with_stick {
        stick::build(shop, &stick::Ingredients { builder: &built.builder, keys: &built.keys, sealed: &sealed, boot: &boot, packs: &packs }, &out)?;
    }
    manifest::write(&out, version(shop, args), args.flavour, args.profile, &built.kernel.release, &sealed, &built.lock)?;
    note(&format!("root.img {} MiB, UKI {} MiB", files::length(&sealed.image)? >> 20, files::length(&boot.uki)? >> 20));
    note(&format!("{} in {:.1} s", out.strip_prefix(&shop.project).unwrap_or(&out).join("disk.img").display(), start.elapsed().as_secs_f64()));
    Ok(())
}

/// Builds a root of its own and packs it and its kernel for the boxes. The image beside it is left as it was.
pub(crate) fn bundle(shop: &Workshop, args: &BundleArgs) -> Done {
    let start = Instant::now();
    let out = shop.out(args.build.flavour, args.build.profile).join("bundle");
    let Whole { built, sealed, boot, out: work } = make_parts(shop, &args.build, out.join("work"), args.bad_kernel)?;
    disk::check_fit(&sealed, shop.recipe.slot_bytes(args.build.profile)?)?;
    let version = version(shop, &args.build);
    let bundle =
        bundle::build(args, &bundle::Ingredients { version, builder: &built.builder, keys: &built.keys, sealed: &sealed, boot: &boot }, &work, &out)?;
    note(&format!("root hash {}", sealed.root_hash));
    let shown = bundle.strip_prefix(&shop.project).unwrap_or(&bundle);
    note(&format!("{}, {} MiB, in {:.1} s", shown.display(), files::length(&bundle)? >> 20, start.elapsed().as_secs_f64()));
    Ok(())
}

/// Builds the packs and prints their digests.
pub(crate) fn packs(shop: &Workshop, args: &PackArgs) -> Done {
    let builder = Stock::open(shop)?.builder()?;
    let keys = Keys::open(shop.keys(), &builder)?;
    let binary = pack::engine_binary(shop, args.engine.clone())?;
    let binary = binary.canonicalize().map_err(Fault::io("no such engine", &binary))?;
    for (pack, kind) in pack::build(shop, &builder, &keys, &binary)?.iter().zip(["signed", "unsigned", "flipped"]) {
        note(&format!("{kind:<9} {}.raw  {} MiB", pack.digest, files::length(&pack.path)? >> 20));
    }
    Ok(())
}

/// Checks a built root, and the test flavour against production.
pub(crate) fn check_root(shop: &Workshop, args: &CheckArgs) -> Done {
    let root = args.root.clone().unwrap_or_else(|| shop.out(args.flavour, Profile::Vm).join("root"));
    if !root.is_dir() {
        return Err(Fault::refused(root.display().to_string(), "there is no such root tree", "run `warden-image root` first"));
    }
    let mut found = audit::findings(&root, args.flavour)?;
    let production = shop.out(Flavour::Production, Profile::Vm).join("root");
    if args.flavour == Flavour::Test {
        if !production.is_dir() {
            return Err(Fault::refused(production.display().to_string(), "there is no production root to compare with", "build it first"));
        }
        found.extend(audit::differences(&production, &root)?);
    }
    let count = files::walk(&root)?.len();
    refuse_findings(found)?;
    println!("{} root: {count} paths, nothing found that must not be there", args.flavour.name());
    Ok(())
}

/// Renews every cached tree and writes the lock file.
pub(crate) fn lock(shop: &Workshop, profile: Profile) -> Done {
    files::remove(&shop.cache.join(format!("{}.dates", shop.recipe.suite)))?;
    files::remove(&shop.cache.join("builder"))?;
    let mut stock = Stock::open(shop)?;
    let builder = stock.builder()?;
    stock.base()?;
    stock.kernel(profile, &builder)?;
    let path = shop.image("packages.lock");
    let mut lock = Lock::parse(&files::read(&path).unwrap_or_default());
    for line in lock.differences(stock.lock()) {
        note(&line);
    }
    lock.replace_sets(stock.lock().clone());
    files::write(&path, lock.text())
}

/// A development build takes newer packages and says so; a release must be made of the locked ones.
fn compare_with_lock(shop: &Workshop, now: &Lock, release: bool) -> Done {
    let path = shop.image("packages.lock");
    let differences = Lock::parse(&files::read(&path).unwrap_or_default()).differences(now);
    for line in differences.iter().take(10) {
        note(line);
    }
    if differences.len() > 10 {
        note(&format!("… and {} more differences from image/packages.lock", differences.len() - 10));
    }
    if release && !differences.is_empty() {
        return Err(Fault::refused(
            "release build",
            format!("{} packages differ from image/packages.lock", differences.len()),
            "run `warden-image lock`, test, and commit the file",
        ));
    }
    Ok(())
}

fn refuse_findings(found: Vec<String>) -> Done {
    if found.is_empty() {
        return Ok(());
    }
    Err(Fault::refused("root tree", found.join("; "), "take it out by image/recipe.toml or the overlay"))
}
