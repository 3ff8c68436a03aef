//! The certificate that port 443 shows: its record on the state partition and its form for the TLS server.

use std::sync::Arc;

use rustls::{
    crypto::ring::sign::any_ecdsa_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use serde::{Deserialize, Serialize};
use warden_domain::{Problem, Secret};

use crate::{decide::LeafFacts, fingerprint};

/// The leaf's file in the room's folder.
pub(crate) const FILE: &str = "certificate.json";

/// A certificate with its key.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) facts: LeafFacts,
    pub(crate) key: Secret<String>,
    pub(crate) certificate: String,
}

/// The file's content; one file, so that a power cut cannot part key and certificate.
#[derive(Serialize, Deserialize)]
pub(crate) struct Record {
    facts: LeafFacts,
    key: String,
    certificate: String,
}

impl From<&Leaf> for Record {
    fn from(leaf: &Leaf) -> Self {
        Self { facts: leaf.facts.clone(), key: leaf.key.expose().clone(), certificate: leaf.certificate.clone() }
    }
}

impl From<Record> for Leaf {
    fn from(record: Record) -> Self {
        Self { facts: record.facts, key: Secret::new(record.key), certificate: record.certificate }
    }
}

/// What the TLS server shows, and its fingerprint.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) facts: LeafFacts,
    pub(crate) fingerprint: String,
    pub(crate) key: Arc<CertifiedKey>,
}

impl Leaf {
    /// Makes the server's form, and checks that key and certificate belong together.
    ///
    /// # Errors
    /// They do not, or are no key and certificate.
    pub(crate) fn show(&self) -> Result<Shown, Problem> {
        let broken = |cause: &dyn std::fmt::Debug| Problem::internal(format!("The certificate in use cannot be read: {cause:?}."));
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(|cause| broken(&cause))?;
        let key = PrivateKeyDer::from_pem_slice(self.key.expose().as_bytes()).map_err(|cause| broken(&cause))?;
        let fingerprint = fingerprint(&certificate);
        let key = CertifiedKey::new(vec![certificate], any_ecdsa_type(&key).map_err(|cause| broken(&cause))?);
        key.keys_match().map_err(|cause| broken(&cause))?;
        Ok(Shown { facts: self.facts.clone(), fingerprint, key: Arc::new(key) })
    }
}
