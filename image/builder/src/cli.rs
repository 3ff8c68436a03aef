//! What can be asked of `warden-image`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Builds the appliance's images and engine packs and boots them.
#[derive(Debug, Parser)]
#[command(name = "warden-image", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make the builder root, or say where it is.
    Builder,
    /// Build the programs that go into images (release form); everything else takes them as they are then, or builds what changed.
    Programs,
    /// Build the root tree of a flavour.
    Root(BuildArgs),
    /// Build the whole image of a flavour: root, slot image, initrd, UKI, disk.
    Image(BuildArgs),
    /// Build an installer stick; with --device also write it.
    Stick(StickArgs),
    /// Try the stick in QEMU with three disks, one of them holding an older installation; this terminal is the guest's serial line.
    VmInstall(TryArgs),
    /// Build an update: a signed bundle of a root and its kernel, `target/image/<flavour>/bundle/warden-<version>.raucb`.
    Bundle(BundleArgs),
    /// Make firmware variable stores for machines with Secure Boot, `target/image/vars/{setup,vendor,ours}.fd`.
    Vars {
        #[arg(long, value_enum, default_value = "production")]
        flavour: Flavour,
    },
    /// Build the signed engine pack and its two test twins (unsigned, one byte flipped).
    Packs(PackArgs),
    /// Change one bit of a pack file in place (for tests of its refusal).
    FlipByte {
        file: PathBuf,
        #[arg(long)]
        offset: Option<u64>,
    },
    /// Boot a built image in QEMU.
    Vm(VmArgs),
    /// Check a built root: no shell, no setuid file, no getty, no ssh, no private key; test differs by one directory.
    CheckRoot(CheckArgs),
    /// Build from the newest packages and write image/packages.lock.
    Lock {
        #[arg(long, value_enum, default_value = "vm")]
        profile: Profile,
    },
}

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    #[arg(long, value_enum, default_value = "production")]
    pub(crate) flavour: Flavour,
    #[arg(long, value_enum, default_value = "vm")]
    pub(crate) profile: Profile,
    /// Refuse packages that differ from image/packages.lock and keys of a developer, and compress harder.
    #[arg(long)]
    pub(crate) release: bool,
    /// The version of the system; the project's own if not given.
    #[arg(long, value_parser = version)]
    pub(crate) version: Option<String>,
    /// Lay this folder over the root, after everything else; for tests. May be given more than once.
    #[arg(long)]
    pub(crate) overlay: Vec<PathBuf>,
    /// Take signing keys, certificates and the root of the update metadata from this folder instead of those of a developer.
    #[arg(long)]
    pub(crate) keys: Option<PathBuf>,
    /// Take the programs an earlier build left instead of building them.
    #[arg(long)]
    pub(crate) as_they_are: bool,
    /// Put the signed engine pack on the data partition.
    #[arg(long)]
    pub(crate) with_pack: bool,
    /// Make the installer stick as well, with the signed engine pack.
    #[arg(long)]
    pub(crate) with_stick: bool,
    /// Copy this folder onto the data partition.
    #[arg(long)]
    pub(crate) seed_data: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BundleArgs {
    #[command(flatten)]
    pub(crate) build: BuildArgs,
    /// For tests: a kernel that finds no initrd and never gets anywhere.
    #[arg(long)]
    pub(crate) bad_kernel: bool,
    /// For tests: sign with a key that no box knows.
    #[arg(long)]
    pub(crate) stranger: bool,
    /// For tests: the old layout, which boxes refuse.
    #[arg(long)]
    pub(crate) plain: bool,
    /// For tests: with a program that wants to run on the box.
    #[arg(long)]
    pub(crate) hook: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StickArgs {
    #[command(flatten)]
    pub(crate) build: BuildArgs,
    /// The stick to write, for example /dev/sdx. It is shown and confirmed before.
    #[arg(long)]
    pub(crate) device: Option<PathBuf>,
    /// Leave the engine pack out: a box installed from such a stick cannot run a model.
    #[arg(long)]
    pub(crate) without_pack: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TryArgs {
    #[arg(long, value_enum, default_value = "production")]
    pub(crate) flavour: Flavour,
    /// Which stick: that of the hardware profile is plugged in as a USB stick, beside larger blank disks.
    #[arg(long, value_enum, default_value = "vm")]
    pub(crate) profile: Profile,
    /// Go on with the disks of the last try and without the stick.
    #[arg(long, conflicts_with = "until_asked")]
    pub(crate) installed: bool,
    /// Pull the plug as soon as the installer asks its first question, and say after how long that was.
    #[arg(long)]
    pub(crate) until_asked: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// The llama-server binary; without it the newest one in the cache.
    #[arg(long)]
    pub(crate) engine: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct VmArgs {
    #[arg(long, value_enum, default_value = "production")]
    pub(crate) flavour: Flavour,
    /// Port of 127.0.0.1 that leads to the guest's 443.
    #[arg(long, default_value_t = 18443)]
    pub(crate) port: u16,
    /// Port of 127.0.0.1 that leads to the guest's 80.
    #[arg(long, default_value_t = 18080)]
    pub(crate) plain_port: u16,
    /// Memory of the guest in MiB.
    #[arg(long, default_value_t = 1024)]
    pub(crate) memory: u32,
    /// Go on with the disks of the last run.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Power off as soon as the agent answers.
    #[arg(long)]
    pub(crate) until_up: bool,
    /// Pull the plug after so many hours.
    #[arg(long, default_value_t = 12)]
    pub(crate) hours: u64,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[arg(long, value_enum, default_value = "production")]
    pub(crate) flavour: Flavour,
    /// A root tree other than the one that was built last.
    #[arg(long)]
    pub(crate) root: Option<PathBuf>,
}

/// A version goes into file names, unit files and the release metadata: dotted numbers, with an optional suffix.
fn version(text: &str) -> Result<String, String> {
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-');
    let numbers = text.split('-').next().unwrap_or_default().split('.');
    let dotted = numbers.clone().count() == 3 && numbers.into_iter().all(|n| !n.is_empty() && n.len() < 10 && n.bytes().all(|b| b.is_ascii_digit()));
    if dotted && plain(text) && text.len() <= 64 { Ok(text.to_owned()) } else { Err("a version looks like 1.2.3 or 1.2.3-rc1".to_owned()) }
}

/// Which image: the product, or the product with a shell for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Flavour {
    Production,
    Test,
}

impl Flavour {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Flavour::Production => "production",
            Flavour::Test => "test",
        }
    }
}

/// For which machine: a virtual one (small slots, cloud kernel) or real hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    Vm,
    Hardware,
}

impl Profile {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Profile::Vm => "vm",
            Profile::Hardware => "hardware",
        }
    }
}
