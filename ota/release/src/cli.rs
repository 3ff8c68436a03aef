//! The commands.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use jiff::Timestamp;
use warden_trust::{Document, Envelope, RELEASE_MAX, ROOT_MAX, Role, Root, Signer, add_signature};

use crate::fault::{Done, Fault};
use crate::keyfile::Key;
use crate::keys::{self, Plan, Rotation, Share};
use crate::recipe::Recipe;
use crate::{channel, files, judge, show, sign};

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
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
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
enum KeyVerb {
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
struct Unlock {
    /// A file whose first line is the passphrase of the keys; WARDEN_RELEASE_PASSPHRASE does the same.
    #[arg(long)]
    passphrase_file: Option<PathBuf>,
}

impl Unlock {
    fn passphrase(&self) -> Done<Option<String>> {
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
struct When {
    /// The date of what is made, such as 2027-03-01T00:00:00Z.
    #[arg(long)]
    at: Option<Timestamp>,
}

impl When {
    fn moment(&self) -> Done<Timestamp> {
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
struct InitArgs {
    /// The folder of keys and root files.
    #[arg(long)]
    dir: PathBuf,
    /// The product, as in the image's RAUC configuration.
    #[arg(long, default_value = "lm-warden-x86_64")]
    compatible: String,
    /// Keys of a developer: no passphrase needed, and production boxes refuse them.
    #[arg(long)]
    development: bool,
    /// With --development: derive every key from this text, so that tests get the same keys each time.
    #[arg(long, requires = "development")]
    dev_seed: Option<String>,
    /// Root keys to make.
    #[arg(long, default_value_t = 3)]
    root_keys: u32,
    /// How many of them must sign.
    #[arg(long, default_value_t = 2)]
    root_threshold: u32,
    /// Release keys to make.
    #[arg(long, default_value_t = 2)]
    release_keys: u32,
    /// How many of them must sign.
    #[arg(long, default_value_t = 1)]
    release_threshold: u32,
    /// Timestamp keys to make; one signs.
    #[arg(long, default_value_t = 1)]
    timestamp_keys: u32,
    /// How long the root file is valid.
    #[arg(long, default_value_t = 1825)]
    days: i64,
    #[command(flatten)]
    unlock: Unlock,
    #[command(flatten)]
    when: When,
}

#[derive(Debug, Args)]
struct RotateArgs {
    /// The folder of keys and root files.
    #[arg(long)]
    dir: PathBuf,
    /// A key to take out, such as release-1; a new one takes its place. May be given several times.
    #[arg(long)]
    replace: Vec<String>,
    /// After a theft: the lowest version of the role's files that counts from now on. Boxes forget higher ones they have seen. Replace keys of one
    /// role only, then.
    #[arg(long)]
    from_version: Option<u64>,
    /// For development keys: derive the new keys from this text.
    #[arg(long)]
    dev_seed: Option<String>,
    /// How long the new root file is valid.
    #[arg(long, default_value_t = 1825)]
    days: i64,
    #[command(flatten)]
    unlock: Unlock,
    #[command(flatten)]
    when: When,
}

#[derive(Debug, Args)]
struct Signing {
    /// The folder with the root chain and, unless --key is given, the keys.
    #[arg(long)]
    keys: PathBuf,
    /// A key file elsewhere, or env:NAME with a seed of 64 hex digits. May be given several times.
    #[arg(long)]
    key: Vec<String>,
    #[command(flatten)]
    unlock: Unlock,
    #[command(flatten)]
    when: When,
}

impl Signing {
    fn signers(&self, role: Role) -> Done<Vec<Key>> {
        keys::signers(&self.keys, &self.key, role, self.unlock.passphrase()?.as_deref())
    }
}

#[derive(Debug, Args)]
struct SignArgs {
    /// The recipe, a TOML file beside the files it names.
    #[arg(long)]
    recipe: PathBuf,
    /// Where the result goes; it appears whole or not at all.
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    signing: Signing,
}

#[derive(Debug, Args)]
struct AddArgs {
    /// root.N.json or release.json.
    file: PathBuf,
    /// A key file, or env:NAME.
    #[arg(long)]
    key: String,
    #[command(flatten)]
    unlock: Unlock,
}

#[derive(Debug, Args)]
struct AttachArgs {
    /// root.N.json or release.json.
    file: PathBuf,
    /// The device's public key, 64 hex digits.
    #[arg(long)]
    public: String,
    /// A file with the 64 raw bytes of the signature.
    #[arg(long)]
    signature: PathBuf,
}

#[derive(Debug, Args)]
struct PublishArgs {
    /// The recipe, a TOML file beside the files it names.
    #[arg(long)]
    recipe: PathBuf,
    /// The signed release file.
    #[arg(long)]
    release: PathBuf,
    /// The channel folder.
    #[arg(long)]
    channel: PathBuf,
    /// How long the channel counts as fresh without a refresh.
    #[arg(long, default_value_t = 14)]
    days: i64,
    #[command(flatten)]
    signing: Signing,
}

#[derive(Debug, Args)]
struct RefreshArgs {
    /// The channel folder.
    #[arg(long)]
    channel: PathBuf,
    /// How long the channel counts as fresh without another refresh.
    #[arg(long, default_value_t = 14)]
    days: i64,
    #[command(flatten)]
    signing: Signing,
}

#[derive(Debug, Args)]
struct BundleArgs {
    /// The channel folder.
    #[arg(long)]
    channel: PathBuf,
    /// Where the result goes; it appears whole or not at all.
    #[arg(long)]
    out: PathBuf,
    /// Only these targets, as kind/name: os/lm-warden. May be given several times.
    #[arg(long)]
    only: Vec<String>,
}

#[derive(Debug, Args)]
struct VerifyArgs {
    /// Channel folder or .wob file.
    path: PathBuf,
    /// The root file the box was born with; any later ones come with the channel or bundle.
    #[arg(long)]
    root: PathBuf,
    /// The channel the box follows; without it, the one it finds.
    #[arg(long)]
    channel: Option<String>,
    /// Judge as a development box.
    #[arg(long)]
    development: bool,
    #[command(flatten)]
    when: When,
}

/// Reads the arguments and does what they say.
///
/// # Errors
/// The sentence to show; whatever was there before is unchanged.
pub fn run() -> Done<()> {
    run_with(std::env::args_os())
}

/// The same with given arguments, the program's name first; a mistake in them ends the process as it does on the command line.
///
/// # Errors
/// As [`run`].
pub fn run_with(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Done<()> {
    match Cli::parse_from(arguments).verb {
        Verb::Keys(KeyVerb::Init(args)) => init(&args),
        Verb::Keys(KeyVerb::Rotate(args)) => rotate(&args),
        Verb::Keys(KeyVerb::Show { dir }) => list(&dir),
        Verb::Sign(args) => sign_release(&args),
        Verb::AddSignature(args) => add(&args),
        Verb::Payload { file } => {
            let (document, bytes) = signed_file(&file)?;
            let envelope = Envelope::read(document, &bytes, document.limit())?;
            std::io::stdout().write_all(envelope.message()).map_err(Fault::io("the bytes cannot be printed"))
        }
        Verb::Attach(args) => attach(&args),
        Verb::Publish(args) => publish(&args),
        Verb::Refresh(args) => refresh(&args),
        Verb::Bundle(args) => {
            let (bytes, targets) = channel::cut(&args.channel, &args.out, &args.only)?;
            say(&format!("{}: {targets} targets, {}", args.out.display(), warden_domain::units::Bytes(bytes)))
        }
        Verb::Verify(args) => verify(&args),
        Verb::Inspect { path, json } => {
            let found = judge::look(&path)?;
            if json { say(&show::json(&found).to_string()) } else { say(show::text(&found).trim_end()) }
        }
    }
}

fn init(args: &InitArgs) -> Done<()> {
    let passphrase = args.unlock.passphrase()?;
    let plan = Plan {
        compatible: &args.compatible,
        development: args.development,
        shares: [
            Share { role: Role::Root, keys: args.root_keys, threshold: args.root_threshold },
            Share { role: Role::Release, keys: args.release_keys, threshold: args.release_threshold },
            Share { role: Role::Timestamp, keys: args.timestamp_keys, threshold: 1 },
        ],
        passphrase: passphrase.as_deref(),
        at: args.when.moment()?,
        days: args.days,
    };
    let root = keys::init(&args.dir, &plan, keys::seeds(args.dev_seed.as_deref()))?;
    say(&format!("{}: {} keys and root.1.json, valid until {}", args.dir.display(), root.keys.len(), root.expires))?;
    say("Next: keep copies of the root keys apart from each other and offline; put root.1.json into the image.")
}

fn rotate(args: &RotateArgs) -> Done<()> {
    let passphrase = args.unlock.passphrase()?;
    let rotation = Rotation {
        replace: &args.replace,
        from_version: args.from_version,
        passphrase: passphrase.as_deref(),
        at: args.when.moment()?,
        days: args.days,
    };
    if args.dev_seed.is_some() && !keys::newest(&args.dir)?.development {
        return Fault::said("--dev-seed makes keys that anybody can make again, and this folder holds production keys. Leave it away.");
    }
    let (root, wanting) = keys::rotate(&args.dir, &rotation, keys::seeds(args.dev_seed.as_deref()))?;
    let path = keys::root_path(&args.dir, root.version);
    say(&format!("{}: valid until {}", path.display(), root.expires))?;
    if wanting > 0 {
        return say(&format!("It still needs {wanting} signatures of root keys: `warden-release add-signature {} --key FILE`.", path.display()));
    }
    say("Next: `refresh` or `publish` each channel with these keys, so that boxes learn of it.")
}

fn list(dir: &Path) -> Done<()> {
    let root = keys::newest(dir)?;
    say(&format!(
        "root {} of {}, {}valid until {}",
        root.version,
        root.compatible,
        if root.development { "DEVELOPMENT, " } else { "" },
        root.expires
    ))?;
    for role in Role::ALL {
        let part = root.role(role);
        say(&format!("{role}: {} of {} must sign", part.threshold, part.key_ids.len()))?;
        let mut here = Vec::new();
        for path in keys::key_files(dir, role)? {
            let id = keys::public_of(&path)?.id();
            let state = if part.key_ids.contains(&id) { "in use" } else { "taken out" };
            here.push(id);
            say(&format!("  {id}  {}  {state}", path.file_stem().unwrap_or_default().to_string_lossy()))?;
        }
        for id in part.key_ids.iter().filter(|id| !here.contains(id)) {
            say(&format!("  {id}  kept elsewhere"))?;
        }
    }
    Ok(())
}

fn sign_release(args: &SignArgs) -> Done<()> {
    let signers = args.signing.signers(Role::Release)?;
    let root = keys::newest(&args.signing.keys)?;
    let release = sign::release(&Recipe::read(&args.recipe)?, &root, args.signing.when.moment()?)?;
    let bytes = sign::signed(&release, &borrow(&signers))?;
    files::replace_with(&args.out, &bytes)?;
    say(&format!(
        "{}: release {} of {}, {} targets, valid until {}",
        args.out.display(),
        release.version,
        release.channel,
        release.entries.len(),
        release.expires
    ))?;
    let lacking = root.role(Role::Release).threshold.saturating_sub(u32::try_from(signers.len()).unwrap_or(u32::MAX));
    if lacking > 0 {
        say(&format!("It still needs {lacking} signatures of release keys: `warden-release add-signature {} --key FILE`.", args.out.display()))?;
    }
    Ok(())
}

fn borrow(keys: &[Key]) -> Vec<&dyn Signer> {
    keys.iter().map(|k| k as &dyn Signer).collect()
}

/// A signed file that people sign by hand, and what it is.
fn signed_file(path: &Path) -> Done<(Document, Vec<u8>)> {
    let bytes = files::read(path, RELEASE_MAX.max(ROOT_MAX))?;
    let kinds = [Document::Root, Document::Release];
    let found = kinds.into_iter().find(|d| Envelope::read(*d, &bytes, d.limit()).is_ok());
    match found {
        Some(document) => Ok((document, bytes)),
        None => Fault::said(format!("{} is neither a root nor a release file, or was changed after it was written.", path.display())),
    }
}

fn add(args: &AddArgs) -> Done<()> {
    let (document, bytes) = signed_file(&args.file)?;
    let role = if document == Document::Root { Role::Root } else { Role::Release };
    let key = Key::load(&args.key, Some(role), args.unlock.passphrase()?.as_deref())?;
    if key.role != role {
        return Fault::said(format!("{} is a {} key, and {} is signed by {role} keys.", args.key, key.role, document));
    }
    let raw = key.sign(Envelope::read(document, &bytes, document.limit())?.message()).map_err(Fault::Said)?;
    files::replace_with(&args.file, &add_signature(document, &bytes, &key.public, &raw)?)?;
    say(&format!("{}: signed by {} too", args.file.display(), key.public.id()))
}

fn attach(args: &AttachArgs) -> Done<()> {
    let (document, bytes) = signed_file(&args.file)?;
    let public = serde_json::from_value(serde_json::Value::from(args.public.clone()));
    let public: warden_trust::PublicKey = public.map_err(|_| Fault::Said("The public key must be 64 lower-case hex digits.".to_owned()))?;
    let raw: [u8; 64] = files::read(&args.signature, 64)?.try_into().map_err(|_| Fault::Said("The signature must be 64 raw bytes.".to_owned()))?;
    files::replace_with(&args.file, &add_signature(document, &bytes, &public, &raw)?)?;
    say(&format!("{}: signed by {} too", args.file.display(), public.id()))
}

fn publish(args: &PublishArgs) -> Done<()> {
    let signers = args.signing.signers(Role::Timestamp)?;
    let stamp = channel::Stamp { signers: borrow(&signers), at: args.signing.when.moment()?, days: args.days };
    let recipe = Recipe::read(&args.recipe)?;
    let release = files::read(&args.release, RELEASE_MAX)?;
    let made = channel::publish(&args.channel, keys::chain(&args.signing.keys)?, release, &stamp, |entry| recipe.file_of(entry))?;
    say(&format!("{}: release {} is current, fresh until {}", args.channel.display(), made.release.version, made.expires))
}

fn refresh(args: &RefreshArgs) -> Done<()> {
    let signers = args.signing.signers(Role::Timestamp)?;
    let stamp = channel::Stamp { signers: borrow(&signers), at: args.signing.when.moment()?, days: args.days };
    let made = channel::refresh(&args.channel, keys::chain(&args.signing.keys)?, &stamp)?;
    say(&format!("{}: release {} is fresh until {}", args.channel.display(), made.release.version, made.expires))
}

fn verify(args: &VerifyArgs) -> Done<()> {
    let root = files::read(&args.root, ROOT_MAX)?;
    let verdict = judge::verify(&args.path, &root, args.channel.as_deref(), args.development, args.when.moment()?)?;
    let born = Root::read(&root)?.0.version;
    say(&format!(
        "{}: sound. Release {} of {}, {} targets checked, trusted from root {born}",
        args.path.display(),
        verdict.release.version,
        verdict.release.channel,
        verdict.targets
    ))?;
    match verdict.stale {
        Some(expires) => Fault::said(format!("The channel is stale: its timestamp was valid until {expires}. Run `warden-release refresh`.")),
        None => Ok(()),
    }
}

fn say(text: &str) -> Done<()> {
    writeln!(std::io::stdout(), "{text}").map_err(Fault::io("nothing can be printed"))
}
