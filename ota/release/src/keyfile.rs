//! A key on disk: its role, its public half, and its seed, sealed with a passphrase unless it is a development key. Other places a key can
//! come from: an environment variable (`env:NAME`, 64 hex digits), or any signing device by way of `payload` and `attach`.

use std::path::Path;

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{Aead, KeyInit};
use serde::{Deserialize, Serialize};
use warden_trust::{PublicKey, Role, SeedKey, Signer};

use crate::fault::{Done, Fault};
use crate::files;

const KIND: &str = "warden-key";
const MEMORY_KIB: u32 = 64 * 1024;
const PASSES: u32 = 3;
const FILE_MAX: usize = 16 * 1024;

/// The file.
#[derive(Serialize, Deserialize)]
struct KeyFile {
    #[serde(rename = "type")]
    kind: String,
    role: Role,
    development: bool,
    public: PublicKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<Sealed>,
}

/// The seed under a passphrase: Argon2id, then XChaCha20-Poly1305.
#[derive(Serialize, Deserialize)]
struct Sealed {
    memory_kib: u32,
    passes: u32,
    salt: String,
    nonce: String,
    content: String,
}

/// A key that can sign.
pub(crate) struct Key {
    /// What it may sign.
    pub(crate) role: Role,
    /// Its half that is told to others.
    pub(crate) public: PublicKey,
    signer: SeedKey,
}

impl Signer for Key {
    fn public(&self) -> PublicKey {
        self.public
    }

    fn sign(&self, message: &[u8]) -> Result<[u8; 64], String> {
        self.signer.sign(message)
    }
}

impl Key {
    /// A key for a role from 32 secret bytes.
    pub(crate) fn from_seed(role: Role, seed: &[u8; 32]) -> Self {
        let signer = SeedKey::from_seed(seed);
        Self { role, public: signer.public(), signer }
    }

    /// Writes a new key file; an existing one is an error. Without a passphrase only development keys are written.
    pub(crate) fn store(&self, path: &Path, seed: &[u8; 32], development: bool, passphrase: Option<&str>) -> Done<()> {
        let mut file = KeyFile { kind: KIND.to_owned(), role: self.role, development, public: self.public, seed: None, sealed: None };
        match passphrase {
            Some(passphrase) => file.sealed = Some(seal(seed, passphrase)?),
            None if development => file.seed = Some(hex::encode(seed)),
            None => {
                return Fault::said(
                    "Production keys need a passphrase. Give --passphrase-file, or set WARDEN_RELEASE_PASSPHRASE; for keys of a developer say --development.",
                );
            }
        }
        let mut text = serde_json::to_vec_pretty(&file).map_err(|e| Fault::Said(format!("the key file cannot be written: {e}")))?;
        text.push(b'\n');
        files::create_new(path, &text, 0o600)
    }

    /// Reads a key: a file, or `env:NAME` for a role.
    pub(crate) fn load(from: &str, role: Option<Role>, passphrase: Option<&str>) -> Done<Self> {
        if let Some(name) = from.strip_prefix("env:") {
            let text = std::env::var(name)
                .map_err(|_| Fault::Said(format!("The environment variable {name} is not set. It must hold a seed of 64 hex digits.")))?;
            let role = role.ok_or_else(|| Fault::Said("A key from the environment has no role of its own; name one with --role.".to_owned()))?;
            return Ok(Self::from_seed(role, &seed_of(text.trim(), name)?));
        }
        let content = files::read(Path::new(from), FILE_MAX)?;
        let wrong = || Fault::Said(format!("{from} is not a key file of this tool. Key files are made by `warden-release keys init`."));
        let file: KeyFile = serde_json::from_slice(&content).map_err(|_| wrong())?;
        if file.kind != KIND {
            return Err(wrong());
        }
        let seed = match (&file.seed, &file.sealed, passphrase) {
            (Some(seed), None, _) => seed_of(seed, from)?,
            (None, Some(sealed), Some(passphrase)) => unseal(sealed, passphrase, from)?,
            (None, Some(_), None) => {
                return Fault::said(format!("{from} is sealed. Give its passphrase with --passphrase-file or WARDEN_RELEASE_PASSPHRASE."));
            }
            _ => return Err(wrong()),
        };
        let key = Self::from_seed(file.role, &seed);
        if key.public == file.public {
            Ok(key)
        } else {
            Fault::said(format!("{from} is damaged: its two halves do not belong together. Take the copy you keep elsewhere."))
        }
    }
}

fn seed_of(text: &str, place: &str) -> Done<[u8; 32]> {
    let mut seed = [0; 32];
    hex::decode_to_slice(text, &mut seed).map_err(|_| Fault::Said(format!("{place} does not hold a seed of 64 hex digits.")))?;
    Ok(seed)
}

/// Fresh secret bytes.
pub(crate) fn random<const N: usize>() -> Done<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Fault::Said(format!("the system gives no random bytes: {e}. Try again on a machine that is fully up.")))?;
    Ok(bytes)
}

fn cipher(sealed: (&[u8], u32, u32), passphrase: &str) -> Done<XChaCha20Poly1305> {
    let (salt, memory_kib, passes) = sealed;
    let failed = |e: argon2::Error| Fault::Said(format!("the passphrase cannot be used: {e}."));
    let params = Params::new(memory_kib, passes, 1, Some(32)).map_err(failed)?;
    let mut key = [0; 32];
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params).hash_password_into(passphrase.as_bytes(), salt, &mut key).map_err(failed)?;
    Ok(XChaCha20Poly1305::new(&key.into()))
}

fn seal(seed: &[u8; 32], passphrase: &str) -> Done<Sealed> {
    let (salt, nonce) = (random::<16>()?, random::<24>()?);
    let content = cipher((&salt, MEMORY_KIB, PASSES), passphrase)?.encrypt(&nonce.into(), seed.as_slice());
    let content = content.map_err(|_| Fault::Said("the key cannot be sealed.".to_owned()))?;
    Ok(Sealed { memory_kib: MEMORY_KIB, passes: PASSES, salt: hex::encode(salt), nonce: hex::encode(nonce), content: hex::encode(content) })
}

fn unseal(sealed: &Sealed, passphrase: &str, place: &str) -> Done<[u8; 32]> {
    let wrong = || Fault::Said(format!("{place} does not open: the passphrase is wrong, or the file is damaged."));
    if sealed.memory_kib > 1024 * 1024 || sealed.passes > 100 {
        return Err(wrong());
    }
    let salt = hex::decode(&sealed.salt).map_err(|_| wrong())?;
    let mut nonce = [0; 24];
    hex::decode_to_slice(&sealed.nonce, &mut nonce).map_err(|_| wrong())?;
    let content = hex::decode(&sealed.content).map_err(|_| wrong())?;
    let seed = cipher((&salt, sealed.memory_kib, sealed.passes), passphrase)?.decrypt(&nonce.into(), content.as_slice()).map_err(|_| wrong())?;
    seed.try_into().map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_key_opens_with_its_passphrase_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("root-1.key");
        let place = path.to_str().unwrap();
        let key = Key::from_seed(Role::Root, &[5; 32]);
        assert!(key.store(&path, &[5; 32], false, None).is_err(), "a production key is never written in the clear");
        key.store(&path, &[5; 32], false, Some("correct horse")).unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains(&hex::encode([5; 32])));
        assert_eq!(Key::load(place, None, Some("correct horse")).unwrap().public, key.public);
        assert!(Key::load(place, None, Some("wrong")).is_err_and(|e| e.to_string().contains("does not open")));
        assert!(Key::load(place, None, None).is_err_and(|e| e.to_string().contains("is sealed")));
        assert!(key.store(&path, &[6; 32], true, None).is_err_and(|e| e.to_string().contains("not overwritten")));
    }
}
