//! The signature of a message: HMAC-SHA256 over the moment it is sent, a dot, and the body. Pure.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use warden_domain::Secret;

/// The header's value: `t=<seconds since the epoch>,v1=<hex>`. A receiver that refuses old moments refuses replays.
pub(crate) fn signature(secret: &Secret<String>, at: i64, body: &[u8]) -> Result<String, InvalidKey> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).map_err(|_| InvalidKey)?;
    mac.update(at.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    Ok(format!("t={at},v1={}", hex::encode(mac.finalize().into_bytes())))
}

/// The secret cannot be used as a key; no key is too short or long for HMAC, so this does not happen.
#[derive(Debug, thiserror::Error)]
#[error("the secret of the alerts cannot be used as a key")]
pub(crate) struct InvalidKey;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_can_compute_the_same_signature() {
        // The same by another implementation: printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac whsec_test
        let made = signature(&Secret::new("whsec_test".into()), 1_700_000_000, br#"{"a":1}"#).unwrap();
        assert_eq!(made, "t=1700000000,v1=38877139021993b830af32feea6e18a8da83eb2f6e49ee50bd9e4cf4ca4d3789");
    }

    #[test]
    fn another_moment_body_or_secret_gives_another_signature() {
        let sign = |secret: &str, at, body: &[u8]| signature(&Secret::new(secret.into()), at, body).unwrap();
        let one = sign("a", 1, b"x");
        for other in [sign("b", 1, b"x"), sign("a", 2, b"x"), sign("a", 1, b"y")] {
            assert_ne!(one.split("v1=").nth(1), other.split("v1=").nth(1));
        }
    }
}
