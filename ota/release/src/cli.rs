//! What the commands do.

use std::io::Write;
use std::path::Path;

use clap::Parser;
use warden_trust::{Document, Envelope, RELEASE_MAX, ROOT_MAX, Role, Root, Signer, add_signature};

use crate::args::{AddArgs, AttachArgs, Cli, InitArgs, KeyVerb, PublishArgs, RefreshArgs, RotateArgs, SignArgs, Verb, VerifyArgs};
use crate::fault::{Done, Fault};
use crate::keyfile::Key;
use crate::keys::{self, Plan, Rotation, Share};
use crate::recipe::Recipe;
use crate::{channel, files, judge, show, sign};

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
