//! The commands and their options, as typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use jiff::Timestamp;
use warden_trust::Role;

use crate::fault::{Done, Fault};
use crate::keyfile::Key;
use crate::{files, keys};

const TEACH: &str = "\
The way of a release, with development keys:

  warden-release keys init --dir keys --compatible lm-warden-x86_64 --development
  warden-release sign    --keys keys --recipe release.toml --out release.json
  warden-release publish --keys keys --recipe release.toml --release release.json --channel www/stable
  warden-release bundle  --channel www/stable --out warden-stable-1.wob
  warden-release verify  www/stable --root keys/root.1.json --development
  warden-release verify  warden-stable-1.wob --root keys/root.1.json --development

A recipe:

  channel = \"stable\"
  version = 1                  # higher with each release
  expires_days = 365
  floor = \"1.0.0\"              # the oldest OS boxes may still run

  [[target]]
  kind = \"os\"                  # os, engine, driver or model
  name = \"lm-warden\"
  version = \"1.0.0\"
  file = \"lm-warden-1.0.0.raucb\"
  data_schema = 1

Dates come from --at, else from SOURCE_DATE_EPOCH, else from the clock. With the same date, keys and files every output has the same bytes.
docs/release.md explains rotation, revocation and offline signing.";

/// Makes keys, signs releases, publishes channels, cuts offline bundles, verifies and inspects both.
#[derive(Debug, Parser)]
#[command(name = "warden-release", version, after_long_help = TEACH)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make, rotate and list keys.
    #[command(subcommand)]
    Keys(KeyVerb),
    /// Read a recipe and its files, and sign a release.
    Sign(SignArgs),
    /// Add the signature of one more key to a signed file.
    AddSignature(AddArgs),
    /// Print the bytes of a signed file that a signing device must sign with ed25519.
    Payload {
        /// root.N.json or release.json.
        file: PathBuf,
    },
    /// Put a signature made by a signing device into a signed file.
    Attach(AttachArgs),
    /// Put a signed release into a channel folder, with a fresh timestamp. The old release stays complete until the last step.
    Publish(PublishArgs),
    /// Sign a fresh timestamp for the published release; do it before the old one ends.
    Refresh(RefreshArgs),
    /// Cut an offline bundle from a channel folder.
    Bundle(BundleArgs),
    /// Judge a channel folder or a bundle as a box would, every byte of it.
    Verify(VerifyArgs),
    /// Say what a channel folder or a bundle holds, believing nothing.
    Inspect {
        /// Folder or .wob file.
        path: PathBuf,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyVerb {
    /// Make a folder of new keys and root.1.json. Nothing is ever overwritten.
    Init(InitArgs),
    /// Make root N+1: replaces the named keys, or only prolongs when none is named.
    Rotate(RotateArgs),
    /// List the keys of a folder and what they may sign.
    Show {
        /// The folder of keys and root files.
        #[arg(long)]
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Unlock {
    /// A file whose first line is the passphrase of the keys; WARDEN_RELEASE_PASSPHRASE does the same.
    #[arg(long)]
    pub(crate) passphrase_file: Option<PathBuf>,
}

impl Unlock {
    /// The passphrase, if one was given.
    pub(crate) fn passphrase(&self) -> Done<Option<String>> {
        let text = match &self.passphrase_file {
            Some(path) => Some(String::from_utf8_lossy(&files::read(path, 4096)?).into_owned()),
            None => std::env::var("WARDEN_RELEASE_PASSPHRASE").ok(),
        };
        let line = text.map(|t| t.lines().next().unwrap_or_default().to_owned());
        match line {
            Some(line) if line.is_empty() => Fault::said("The passphrase is empty. Write one, or leave the option away."),
            other => Ok(other),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct When {
    /// The date of what is made, such as 2027-03-01T00:00:00Z.
    #[arg(long)]
    pub(crate) at: Option<Timestamp>,
}

impl When {
    /// The date to write: the option, SOURCE_DATE_EPOCH or the clock.
    pub(crate) fn moment(&self) -> Done<Timestamp> {
        if let Some(at) = self.at {
            return Ok(at);
        }
        match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(text) => {
                let at = text.parse().ok().and_then(|s| Timestamp::from_second(s).ok());
                at.ok_or_else(|| Fault::Said(format!("SOURCE_DATE_EPOCH is {text:?}, which is no number of seconds. Mend or unset it.")))
            }
            Err(_) => {
                let second = warden_domain::clock::now().as_second();
                Timestamp::from_second(second).map_err(|e| Fault::Said(format!("The clock cannot be used: {e}.")))
            }
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The folder of keys and root files.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// The product, as in the image's RAUC configuration.
    #[arg(long, default_value = "lm-warden-x86_64")]
    pub(crate) compatible: String,
    /// Keys of a developer: no passphrase needed, and production boxes refuse them.
    #[arg(long)]
    pub(crate) development: bool,
    /// With --development: derive every key from this text, so that tests get the same keys each time.
    #[arg(long, requires = "development")]
    pub(crate) dev_seed: Option<String>,
    /// Root keys to make.
    #[arg(long, default_value_t = 3)]
    pub(crate) root_keys: u32,
    /// How many of them must sign.
    #[arg(long, default_value_t = 2)]
    pub(crate) root_threshold: u32,
    /// Release keys to make.
    #[arg(long, default_value_t = 2)]
    pub(crate) release_keys: u32,
    /// How many of them must sign.
    #[arg(long, default_value_t = 1)]
    pub(crate) release_threshold: u32,
    /// Timestamp keys to make; one signs.
    #[arg(long, default_value_t = 1)]
    pub(crate) timestamp_keys: u32,
    /// How long the root file is valid.
    #[arg(long, default_value_t = 1825)]
    pub(crate) days: i64,
    #[command(flatten)]
    pub(crate) unlock: Unlock,
    #[command(flatten)]
    pub(crate) when: When,
}

#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    /// The folder of keys and root files.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// A key to take out, such as release-1; a new one takes its place. May be given several times.
    #[arg(long)]
    pub(crate) replace: Vec<String>,
    /// After a theft: the lowest version of the role's files that counts from now on. Boxes forget higher ones they have seen. Replace keys of one
    /// role only, then.
    #[arg(long)]
    pub(crate) from_version: Option<u64>,
    /// For development keys: derive the new keys from this text.
    #[arg(long)]
    pub(crate) dev_seed: Option<String>,
    /// How long the new root file is valid.
    #[arg(long, default_value_t = 1825)]
    pub(crate) days: i64,
    #[command(flatten)]
    pub(crate) unlock: Unlock,
    #[command(flatten)]
    pub(crate) when: When,
}

#[derive(Debug, Args)]
pub(crate) struct Signing {
    /// The folder with the root chain and, unless --key is given, the keys.
    #[arg(long)]
    pub(crate) keys: PathBuf,
    /// A key file elsewhere, or env:NAME with a seed of 64 hex digits. May be given several times.
    #[arg(long)]
    pub(crate) key: Vec<String>,
    #[command(flatten)]
    pub(crate) unlock: Unlock,
    #[command(flatten)]
    pub(crate) when: When,
}

impl Signing {
    /// The keys that sign as a role.
    pub(crate) fn signers(&self, role: Role) -> Done<Vec<Key>> {
        keys::signers(&self.keys, &self.key, role, self.unlock.passphrase()?.as_deref())
    }
}

#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// The recipe, a TOML file beside the files it names.
    #[arg(long)]
    pub(crate) recipe: PathBuf,
    /// Where the result goes; it appears whole or not at all.
    #[arg(long)]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) signing: Signing,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// root.N.json or release.json.
    pub(crate) file: PathBuf,
    /// A key file, or env:NAME.
    #[arg(long)]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) unlock: Unlock,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// root.N.json or release.json.
    pub(crate) file: PathBuf,
    /// The device's public key, 64 hex digits.
    #[arg(long)]
    pub(crate) public: String,
    /// A file with the 64 raw bytes of the signature.
    #[arg(long)]
    pub(crate) signature: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// The recipe, a TOML file beside the files it names.
    #[arg(long)]
    pub(crate) recipe: PathBuf,
    /// The signed release file.
    #[arg(long)]
    pub(crate) release: PathBuf,
    /// The channel folder.
    #[arg(long)]
    pub(crate) channel: PathBuf,
    /// How long the channel counts as fresh without a refresh.
    #[arg(long, default_value_t = 14)]
    pub(crate) days: i64,
    #[command(flatten)]
    pub(crate) signing: Signing,
}

#[derive(Debug, Args)]
pub(crate) struct RefreshArgs {
    /// The channel folder.
    #[arg(long)]
    pub(crate) channel: PathBuf,
    /// How long the channel counts as fresh without another refresh.
    #[arg(long, default_value_t = 14)]
    pub(crate) days: i64,
    #[command(flatten)]
    pub(crate) signing: Signing,
}

#[derive(Debug, Args)]
pub(crate) struct BundleArgs {
    /// The channel folder.
    #[arg(long)]
    pub(crate) channel: PathBuf,
    /// Where the result goes; it appears whole or not at all.
    #[arg(long)]
    pub(crate) out: PathBuf,
    /// Only these targets, as kind/name: os/lm-warden. May be given several times.
    #[arg(long)]
    pub(crate) only: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Channel folder or .wob file.
    pub(crate) path: PathBuf,
    /// The root file the box was born with; any later ones come with the channel or bundle.
    #[arg(long)]
    pub(crate) root: PathBuf,
    /// The channel the box follows; without it, the one it finds.
    #[arg(long)]
    pub(crate) channel: Option<String>,
    /// Judge as a development box.
    #[arg(long)]
    pub(crate) development: bool,
    #[command(flatten)]
    pub(crate) when: When,
}
