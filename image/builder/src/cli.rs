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
    /// Build the root tree of a flavour.
    Root(BuildArgs),
    /// Build the whole image of a flavour: root, slot image, initrd, UKI, disk.
    Image(BuildArgs),
    /// Build an installer stick; with --device also write it.
    Stick(StickArgs),
    /// Try the stick in QEMU with three disks, one of them holding an older installation; this terminal is the guest's serial line.
    VmInstall(TryArgs),
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
    /// Refuse packages that differ from image/packages.lock, and compress harder.
    #[arg(long)]
    pub(crate) release: bool,
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
