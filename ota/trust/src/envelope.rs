//! A signed file: `{"signatures":[{"key_id","sig"}…],"signed":{…}}`, in canonical form as a whole. Signatures are over the canonical
//! bytes of `signed` alone. This module reads the shape, counts distinct valid signatures against a role, and makes such files.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::canonical::{canonical, parse};
use crate::key::{KeyId, PublicKey};
use crate::refusal::{Document, Refusal};
use crate::root::{Role, Root};

/// More signatures than this on one file are refused before any is looked at.
pub const MAX_SIGNATURES: usize = 32;

/// One signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// Whose it claims to be.
    pub key_id: KeyId,
    /// 64 bytes in hex.
    pub sig: String,
}

/// A signed file that was read but not yet believed.
#[derive(Clone, Debug)]
pub struct Envelope {
    document: Document,
    signed: Value,
    message: Vec<u8>,
    signatures: Vec<Signature>,
}

/// Whoever can sign: a key in memory, a token, a service.
pub trait Signer {
    /// The public half.
    fn public(&self) -> PublicKey;

    /// Signs these bytes.
    ///
    /// # Errors
    /// A sentence of the token or service that could not.
    fn sign(&self, message: &[u8]) -> Result<[u8; 64], String>;
}

impl Envelope {
    /// Reads a file of at most `limit` bytes.
    ///
    /// # Errors
    /// Too large, not canonical JSON, a member or key id twice, too many signatures, not the shape of a signed file, or another kind of document.
    pub fn read(document: Document, bytes: &[u8], limit: usize) -> Result<Self, Refusal> {
        let mut value = parse(document, bytes, limit)?;
        let shape = |detail: String| Refusal::Unreadable { document, detail };
        let signed = value.get_mut("signed").map(Value::take).filter(Value::is_object).ok_or_else(|| shape("\"signed\" is missing".to_owned()))?;
        let listed = value.get_mut("signatures").map(Value::take).unwrap_or(Value::Null);
        let signatures: Vec<Signature> = serde_json::from_value(listed).map_err(|e| shape(format!("signatures: {e}")))?;
        if signatures.len() > MAX_SIGNATURES {
            return Err(shape(format!("{} signatures, at most {MAX_SIGNATURES}", signatures.len())));
        }
        let mut met = BTreeSet::new();
        for signature in &signatures {
            if !met.insert(signature.key_id) {
                return Err(Refusal::DuplicateSignature { document, key_id: signature.key_id });
            }
        }
        let kind = signed.get("type").and_then(Value::as_str).unwrap_or_default();
        if kind != document.kind() {
            return Err(Refusal::WrongDocument { document, found: kind.to_owned() });
        }
        let spec = signed.get("spec").and_then(Value::as_u64).unwrap_or_default();
        if spec != crate::SPEC {
            return Err(Refusal::UnknownSpec { document, found: spec });
        }
        let message = canonical(&signed).map_err(shape)?;
        Ok(Self { document, signed, message, signatures })
    }

    /// The content, typed. Members that the type does not know are left out of every decision.
    ///
    /// # Errors
    /// A member is missing or of the wrong type.
    pub fn content<T: for<'de> Deserialize<'de>>(&self) -> Result<T, Refusal> {
        serde_json::from_value(self.signed.clone()).map_err(|e| Refusal::Unreadable { document: self.document, detail: e.to_string() })
    }

    /// Exactly the bytes that are signed; what an external signer is given.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The signatures as they stand in the file, valid or not.
    #[must_use]
    pub fn signatures(&self) -> &[Signature] {
        &self.signatures
    }

    /// Demands that enough distinct keys of `role` in `root` signed. Signatures of strangers are passed over; one of a listed key that does
    /// not verify is an error. Keys in `revoked` do not count.
    ///
    /// # Errors
    /// A bad signature of a listed key, a revoked signer without whom it is too few, or too few.
    pub fn demand(&self, root: &Root, role: Role, revoked: &BTreeSet<KeyId>) -> Result<(), Refusal> {
        let document = self.document;
        let keys = root.role(role);
        let (mut valid, mut struck) = (0_u32, None);
        for signature in self.signatures.iter().filter(|s| keys.key_ids.contains(&s.key_id)) {
            let public = root.key(&signature.key_id).ok_or(Refusal::BadSignature { document, key_id: signature.key_id })?;
            let mut raw = [0; 64];
            if hex::decode_to_slice(&signature.sig, &mut raw).is_err() || !public.verifies(&self.message, &raw) {
                return Err(Refusal::BadSignature { document, key_id: signature.key_id });
            }
            if revoked.contains(&signature.key_id) {
                struck = Some(signature.key_id);
            } else {
                valid += 1;
            }
        }
        match struck {
            _ if valid >= keys.threshold => Ok(()),
            Some(key_id) => Err(Refusal::RevokedSigner { document, key_id }),
            None if valid == 0 => Err(Refusal::NotSignedByUs { document, role }),
            None => Err(Refusal::TooFewSignatures { document, role, valid, needed: keys.threshold }),
        }
    }
}

/// Makes a signed file out of a document and the given signers, in the order of their key ids.
///
/// # Errors
/// The document has no canonical form, or a signer failed; the text says which.
pub fn seal<T: Serialize>(content: &T, signers: &[&dyn Signer]) -> Result<Vec<u8>, String> {
    let signed = serde_json::to_value(content).map_err(|e| e.to_string())?;
    let message = canonical(&signed)?;
    let mut signatures = Vec::new();
    for signer in signers {
        signatures.push(Signature { key_id: signer.public().id(), sig: hex::encode(signer.sign(&message)?) });
    }
    write(&signed, signatures)
}

/// Adds a signature to a signed file; one of the same key is replaced.
///
/// # Errors
/// The file is not a signed file of this kind, or the signature does not belong to the key.
pub fn add_signature(document: Document, bytes: &[u8], key: &PublicKey, raw: &[u8; 64]) -> Result<Vec<u8>, Refusal> {
    let envelope = Envelope::read(document, bytes, document.limit())?;
    if !key.verifies(&envelope.message, raw) {
        return Err(Refusal::BadSignature { document, key_id: key.id() });
    }
    let mut signatures: Vec<Signature> = envelope.signatures.into_iter().filter(|s| s.key_id != key.id()).collect();
    signatures.push(Signature { key_id: key.id(), sig: hex::encode(raw) });
    write(&envelope.signed, signatures).map_err(|detail| Refusal::Unreadable { document, detail })
}

fn write(signed: &Value, mut signatures: Vec<Signature>) -> Result<Vec<u8>, String> {
    signatures.sort_by_key(|s| s.key_id);
    canonical(&json!({"signed": signed, "signatures": signatures}))
}
