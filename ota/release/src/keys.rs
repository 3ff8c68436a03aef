//! The folder of a publisher's keys: `<role>-<n>.key`, and the public chain `root.<n>.json`. Making it, rotating keys, finding signers.

use std::path::{Path, PathBuf};

use jiff::{Timestamp, ToSpan};
use warden_trust::{Digest, Document, Envelope, ROOT_MAX, Role, Root, RootKey, SPEC, Signer, add_signature, seal};

use crate::fault::{Done, Fault};
use crate::files;
use crate::keyfile::{Key, random};

/// How many keys a role has and how many must sign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) role: Role,
    pub(crate) keys: u32,
    pub(crate) threshold: u32,
}

/// What `keys init` is told.
pub(crate) struct Plan<'a> {
    pub(crate) compatible: &'a str,
    pub(crate) development: bool,
    pub(crate) shares: [Share; 3],
    pub(crate) passphrase: Option<&'a str>,
    pub(crate) at: Timestamp,
    pub(crate) days: i64,
}

/// Moment plus days.
pub(crate) fn later(at: Timestamp, days: i64) -> Done<Timestamp> {
    days.checked_mul(24)
        .and_then(|hours| at.checked_add(hours.hours()).ok())
        .ok_or_else(|| Fault::Said(format!("{days} days after {at} is no date this tool can write. Choose fewer days.")))
}

/// Makes a folder of new keys and the first root file. `seed` gives 32 secret bytes per key.
pub(crate) fn init(dir: &Path, plan: &Plan<'_>, mut seed: impl FnMut(Role, u32) -> Done<[u8; 32]>) -> Done<Root> {
    files::folder(dir)?;
    if root_path(dir, 1).exists() || plan.shares.iter().any(|s| (1..=s.keys).any(|n| key_path(dir, s.role, n).exists())) {
        return Fault::said(format!(
            "{} holds keys already, and keys are never overwritten. Choose an empty folder, or use `keys rotate`.",
            dir.display()
        ));
    }
    let mut keys = Vec::new();
    for share in plan.shares {
        for n in 1..=share.keys {
            let bytes = seed(share.role, n)?;
            keys.push((n, Key::from_seed(share.role, &bytes), bytes));
        }
    }
    let role = |share: Share| warden_trust::RoleKeys {
        key_ids: keys.iter().filter(|(_, k, _)| k.role == share.role).map(|(_, k, _)| k.public.id()).collect(),
        threshold: share.threshold,
        from_version: 0,
    };
    let [root_share, release_share, timestamp_share] = plan.shares;
    let root = Root {
        kind: Document::Root.kind().to_owned(),
        spec: SPEC,
        version: 1,
        compatible: plan.compatible.to_owned(),
        development: plan.development,
        issued: plan.at,
        expires: later(plan.at, plan.days)?,
        keys: keys.iter().map(|(_, k, _)| RootKey { key_id: k.public.id(), public: k.public }).collect(),
        roles: warden_trust::Roles { root: role(root_share), release: role(release_share), timestamp: role(timestamp_share) },
    };
    root.check().map_err(|detail| Fault::Said(format!("The root file would contradict itself: {detail}. Change the numbers of keys.")))?;
    for (n, key, bytes) in &keys {
        key.store(&key_path(dir, key.role, *n), bytes, plan.development, plan.passphrase)?;
    }
    let signers: Vec<&dyn Signer> = keys.iter().filter(|(_, k, _)| k.role == Role::Root).map(|(_, k, _)| k as &dyn Signer).collect();
    files::create_new(&root_path(dir, 1), &seal(&root, &signers).map_err(Fault::Said)?, 0o644)?;
    Ok(root)
}

/// The root chain of a folder, oldest first, as bytes.
pub(crate) fn chain(dir: &Path) -> Done<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    while root_path(dir, all.len() as u64 + 1).exists() {
        all.push(files::read(&root_path(dir, all.len() as u64 + 1), ROOT_MAX)?);
    }
    if all.is_empty() {
        return Fault::said(format!("{} holds no root.1.json. Make keys first: `warden-release keys init --dir {}`.", dir.display(), dir.display()));
    }
    Ok(all)
}

/// The newest root of a folder.
pub(crate) fn newest(dir: &Path) -> Done<Root> {
    let all = chain(dir)?;
    Ok(Root::read(all.last().map(Vec::as_slice).unwrap_or_default())?.0)
}

/// All keys of a role that lie in the folder and that the newest root names, or those given one by one.
pub(crate) fn signers(dir: &Path, given: &[String], role: Role, passphrase: Option<&str>) -> Done<Vec<Key>> {
    let root = newest(dir)?;
    let mut keys = Vec::new();
    if given.is_empty() {
        for path in key_files(dir, role)? {
            let key = Key::load(&path.to_string_lossy(), Some(role), passphrase)?;
            if root.role(role).key_ids.contains(&key.public.id()) {
                keys.push(key);
            }
        }
    }
    for from in given {
        let key = Key::load(from, Some(role), passphrase)?;
        if key.role != role || !root.role(role).key_ids.contains(&key.public.id()) {
            return Fault::said(format!(
                "{from} is not a {role} key of root version {}. Boxes would refuse what it signs; use a key that `keys show` lists.",
                root.version
            ));
        }
        keys.push(key);
    }
    if keys.is_empty() {
        return Fault::said(format!("{} holds no {role} key of root version {}. Give one with --key.", dir.display(), root.version));
    }
    Ok(keys)
}

/// What `keys rotate` is told.
pub(crate) struct Rotation<'a> {
    /// Keys to take out, as `release-1`; each gets a successor in its role.
    pub(crate) replace: &'a [String],
    /// Lowest version that counts from now on, for roles that lose a key.
    pub(crate) from_version: Option<u64>,
    pub(crate) passphrase: Option<&'a str>,
    pub(crate) at: Timestamp,
    pub(crate) days: i64,
}

/// Makes the next root file, signed by every root key of the folder, old and new. Returns it and how many signatures are still wanting.
pub(crate) fn rotate(dir: &Path, rotation: &Rotation<'_>, mut seed: impl FnMut(Role, u32) -> Done<[u8; 32]>) -> Done<(Root, u32)> {
    let old = newest(dir)?;
    let path = root_path(dir, old.version + 1);
    let mut next = old.clone();
    next.version += 1;
    next.issued = rotation.at;
    next.expires = later(rotation.at, rotation.days)?;
    let mut fresh = Vec::new();
    for name in rotation.replace {
        let (role, key_id) = named(dir, name)?;
        let keys = match role {
            Role::Root => &mut next.roles.root,
            Role::Release => &mut next.roles.release,
            Role::Timestamp => &mut next.roles.timestamp,
        };
        let Some(slot) = keys.key_ids.iter_mut().find(|id| **id == key_id) else {
            return Fault::said(format!("{name} is not in root version {} any more. `keys show` lists those that are.", old.version));
        };
        let taken = |n: u32| key_path(dir, role, n).exists() || fresh.iter().any(|(m, k, _): &(u32, Key, _)| *m == n && k.role == role);
        let n =
            (1..1000).find(|n| !taken(*n)).ok_or_else(|| Fault::Said("There are 999 keys of one role in this folder; clear it up.".to_owned()))?;
        let bytes = seed(role, n)?;
        let key = Key::from_seed(role, &bytes);
        *slot = key.public.id();
        if let Some(from) = rotation.from_version {
            keys.from_version = from;
        }
        next.keys.retain(|k| k.key_id != key_id);
        next.keys.push(RootKey { key_id: key.public.id(), public: key.public });
        fresh.push((n, key, bytes));
    }
    next.check().map_err(|detail| Fault::Said(format!("The new root file would contradict itself: {detail}.")))?;
    if path.exists() {
        return Fault::said(format!("{} is there already and is not overwritten.", path.display()));
    }
    let mut signed = seal(&next, &[]).map_err(Fault::Said)?;
    let mut held = Vec::new();
    for file in key_files(dir, Role::Root)? {
        held.push(Key::load(&file.to_string_lossy(), Some(Role::Root), rotation.passphrase)?);
    }
    let new_root_keys = fresh.iter().filter(|(_, k, _)| k.role == Role::Root).map(|(_, k, _)| k);
    for key in held.iter().chain(new_root_keys) {
        let (id, public) = (key.public.id(), key.public);
        if old.roles.root.key_ids.contains(&id) || next.roles.root.key_ids.contains(&id) {
            let raw = key.sign(Envelope::read(Document::Root, &signed, ROOT_MAX)?.message()).map_err(Fault::Said)?;
            signed = add_signature(Document::Root, &signed, &public, &raw)?;
        }
    }
    for (n, key, bytes) in &fresh {
        key.store(&key_path(dir, key.role, *n), bytes, old.development, rotation.passphrase)?;
    }
    files::create_new(&path, &signed, 0o644)?;
    Ok((next.clone(), wanting(&signed, &old, &next)?))
}

/// How many signatures a root file lacks, of the old and the new keys together.
fn wanting(signed: &[u8], old: &Root, next: &Root) -> Done<u32> {
    let envelope = Envelope::read(Document::Root, signed, ROOT_MAX)?;
    let lacks = |root: &Root| {
        let keys = root.role(Role::Root);
        let have = envelope.signatures().iter().filter(|s| keys.key_ids.contains(&s.key_id)).count();
        keys.threshold.saturating_sub(u32::try_from(have).unwrap_or(u32::MAX))
    };
    Ok(lacks(old).max(lacks(next)))
}

fn named(dir: &Path, name: &str) -> Done<(Role, warden_trust::KeyId)> {
    let unknown = || Fault::Said(format!("{name:?} is no key of {}. Names are as `keys show` prints them, such as release-1.", dir.display()));
    let (role, n) = name.rsplit_once('-').ok_or_else(unknown)?;
    let role = Role::ALL.into_iter().find(|r| r.name() == role).ok_or_else(unknown)?;
    let path = key_path(dir, role, n.parse().map_err(|_| unknown())?);
    Ok((role, public_of(&path)?.id()))
}

/// The public half of a key file, which needs no passphrase.
pub(crate) fn public_of(path: &Path) -> Done<warden_trust::PublicKey> {
    let content = files::read(path, 16 * 1024)?;
    let file: serde_json::Value = serde_json::from_slice(&content).unwrap_or_default();
    let public = file.get("public").cloned().and_then(|p| serde_json::from_value(p).ok());
    public.ok_or_else(|| Fault::Said(format!("{} is not a key file of this tool.", path.display())))
}

/// The key files of a role, by number.
pub(crate) fn key_files(dir: &Path, role: Role) -> Done<Vec<PathBuf>> {
    Ok((1..1000).map(|n| key_path(dir, role, n)).filter(|p| p.exists()).collect())
}

/// Where a key lies.
pub(crate) fn key_path(dir: &Path, role: Role, n: u32) -> PathBuf {
    dir.join(format!("{role}-{n}.key"))
}

/// Where a root file lies.
pub(crate) fn root_path(dir: &Path, version: u64) -> PathBuf {
    dir.join(format!("root.{version}.json"))
}

/// Where seeds of new keys come from: the system, or a text for development keys that are the same each time.
pub(crate) fn seeds(text: Option<&str>) -> impl FnMut(Role, u32) -> Done<[u8; 32]> {
    move |role, n| match text {
        Some(text) => Ok(*Digest::of(format!("warden development key\n{text}\n{role}-{n}").as_bytes()).raw()),
        None => random(),
    }
}
