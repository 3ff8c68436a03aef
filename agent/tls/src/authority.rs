//! The box's own certificate authority: made once, kept on the state partition, signs this box's certificates only.

use std::path::Path;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use warden_domain::{Problem, Secret};

use crate::{
    Wanted,
    decide::{HEAD_START, LIFE, LeafFacts},
    fingerprint,
    keep::{self, Kept},
    leaf::Leaf,
};

/// The authority's file in the room's folder.
pub(crate) const FILE: &str = "authority.json";
/// It is valid whatever the clock of the first boot said.
const FROM: i64 = 1_577_836_800; // 2020-01-01
const UNTIL: i64 = 2_524_607_999; // 2049-12-31

/// The file's content. Key and certificate lie in one file, so that a power cut cannot part them.
#[derive(Serialize, Deserialize)]
struct Record {
    name: String,
    made_at: Timestamp,
    key: String,
    certificate: String,
}

/// The authority, ready to sign.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
    pub(crate) der: Vec<u8>,
    pub(crate) fingerprint: String,
}

impl Authority {
    /// Reads the authority, or makes it when there is none yet. A file that cannot be read is kept aside under another name, never
    /// overwritten, and a new authority takes its place: the box stays reachable, and browsers ask anew.
    ///
    /// # Errors
    /// The folder is not writable, or no random numbers.
    pub(crate) fn open(folder: &Path, host: &str, now: Timestamp) -> Result<Self, Problem> {
        if let Kept::Read(record) = keep::read::<Record>(&folder.join(FILE))? {
            match Self::of(&record) {
                Ok(authority) => return Ok(authority),
                Err(problem) => keep::set_aside(&folder.join(FILE), &problem.message)?,
            }
        }
        let key = KeyPair::generate().map_err(crypto)?;
        let name = format!("LM Warden {host} {}", &hex::encode(key.public_key_raw())[2..10]);
        let certificate = params(&name)?.self_signed(&key).map_err(crypto)?;
        let record = Record { name, made_at: now, key: key.serialize_pem(), certificate: certificate.pem() };
        keep::write(&folder.join(FILE), &record)?;
        tracing::info!(name = record.name, "made the box's own certificate authority");
        Self::of(&record)
    }

    fn of(record: &Record) -> Result<Self, Problem> {
        let key = KeyPair::from_pem(&record.key).map_err(crypto)?;
        let der = CertificateDer::from_pem_slice(record.certificate.as_bytes())
            .map_err(|cause| Problem::internal(format!("The authority's certificate cannot be read: {cause:?}.")))?
            .to_vec();
        let fingerprint = fingerprint(&der);
        Ok(Self { issuer: Issuer::new(params(&record.name)?, key), pem: record.certificate.clone(), der, fingerprint })
    }

    /// Makes and signs a certificate for names and addresses, with a key of its own.
    ///
    /// # Errors
    /// No random numbers.
    pub(crate) fn issue(&self, wanted: &Wanted, now: Timestamp) -> Result<Leaf, Problem> {
        let key = KeyPair::generate().map_err(crypto)?;
        let facts = LeafFacts {
            names: wanted.names.clone(),
            addresses: wanted.addresses.clone(),
            authority: self.fingerprint.clone(),
            issued_at: now,
            not_before: now - HEAD_START,
            not_after: now + LIFE,
        };
        let mut params = CertificateParams::default();
        params.not_before = moment(facts.not_before.as_second());
        params.not_after = moment(facts.not_after.as_second());
        params.distinguished_name = DistinguishedName::new();
        // What a person reads in the browser's dialogue; clients compare the alternative names only.
        let shown = wanted.names.iter().find(|name| name.as_str() != "localhost").map_or("localhost", String::as_str);
        params.distinguished_name.push(DnType::CommonName, &shown[..shown.len().min(64)]);
        for name in &wanted.names {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into().map_err(crypto)?));
        }
        params.subject_alt_names.extend(wanted.addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).map_err(crypto)?;
        Ok(Leaf { facts, key: Secret::new(key.serialize_pem()), certificate: certificate.pem() })
    }
}

fn params(name: &str) -> Result<CertificateParams, Problem> {
    let mut params = CertificateParams::default();
    params.not_before = moment(FROM);
    params.not_after = moment(UNTIL);
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "LM Warden");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn moment(second: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(second).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

fn crypto(cause: impl std::fmt::Display) -> Problem {
    Problem::internal(format!("A certificate could not be made: {cause}.")).hint("Restart the machine; if it repeats, report it with the log.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-05-01T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn the_authority_of_the_first_boot_stays_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let first = Authority::open(folder.path(), "warden", now()).unwrap();
        let second = Authority::open(folder.path(), "renamed", now()).unwrap();
        assert_eq!(first.fingerprint, second.fingerprint);
        assert!(first.pem.starts_with("-----BEGIN CERTIFICATE-----"));
    }

    #[test]
    fn two_boxes_of_one_name_have_different_authorities() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (one, two) = (Authority::open(one.path(), "warden", now()).unwrap(), Authority::open(two.path(), "warden", now()).unwrap());
        assert_ne!(one.fingerprint, two.fingerprint);
    }

    #[test]
    fn a_damaged_file_is_kept_aside_and_the_box_stays_reachable() {
        let folder = tempfile::tempdir().unwrap();
        for damage in ["", "{}", r#"{"name":"x","made_at":"2026-05-01T12:00:00Z","key":"no","certificate":"no"}"#] {
            std::fs::write(folder.path().join(FILE), damage).unwrap();
            Authority::open(folder.path(), "warden", now()).unwrap();
        }
        let aside = std::fs::read_dir(folder.path()).unwrap().filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().contains("unreadable"));
        assert!(aside.count() >= 1);
    }
}
