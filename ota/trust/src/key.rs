//! Keys: the public half as 32 raw bytes, named by its own SHA-256, so that a name can never point at another key.

use ed25519_dalek::{Signature as RawSignature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::envelope::Signer;

/// The name of a key: SHA-256 of the raw public key.
pub type KeyId = Digest;

/// A public ed25519 key; written as 64 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PublicKey(Digest);

impl PublicKey {
    /// From the 32 raw bytes; `None` when they are no point of the curve, or one of the few weak ones.
    #[must_use]
    pub fn from_raw(raw: [u8; 32]) -> Option<Self> {
        let key = VerifyingKey::from_bytes(&raw).ok()?;
        (!key.is_weak()).then_some(Self(Digest::from_raw(raw)))
    }

    /// The 32 raw bytes.
    #[must_use]
    pub const fn raw(&self) -> &[u8; 32] {
        self.0.raw()
    }

    /// The key's name.
    #[must_use]
    pub fn id(&self) -> KeyId {
        Digest::of(self.raw())
    }

    /// True when the bytes are a key at all; metadata with other bytes is refused.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        Self::from_raw(*self.raw()).is_some()
    }

    /// True when `signature` is this key's over exactly `message`.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        VerifyingKey::from_bytes(self.raw()).is_ok_and(|key| key.verify_strict(message, &RawSignature::from_bytes(signature)).is_ok())
    }
}

/// A signing key held in memory, from its 32-byte seed. The seed is wiped when the key is dropped.
pub struct SeedKey(SigningKey);

impl SeedKey {
    /// From a seed of 32 secret bytes.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }
}

impl Signer for SeedKey {
    fn public(&self) -> PublicKey {
        PublicKey(Digest::from_raw(self.0.verifying_key().to_bytes()))
    }

    fn sign(&self, message: &[u8]) -> Result<[u8; 64], String> {
        Ok(self.0.sign(message).to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_holds_for_its_own_key_and_bytes_only() {
        let (one, two) = (SeedKey::from_seed(&[1; 32]), SeedKey::from_seed(&[2; 32]));
        let signature = one.sign(b"text").unwrap();
        assert!(one.public().verifies(b"text", &signature));
        assert!(!one.public().verifies(b"texu", &signature));
        assert!(!two.public().verifies(b"text", &signature));
    }

    #[test]
    fn weak_points_are_no_keys() {
        assert!(PublicKey::from_raw([0; 32]).is_none());
        let mut identity = [0; 32];
        identity[0] = 1;
        assert!(PublicKey::from_raw(identity).is_none());
        assert!(PublicKey::from_raw(*SeedKey::from_seed(&[7; 32]).public().raw()).is_some());
    }
}
