//! Random texts that prove something: session cookies, CSRF proofs, key secrets; and the hash under which they are kept.
//!
//! All have 256 random bits, so a plain SHA-256 is enough to keep them: nobody can try them out.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use warden_domain::{Secret, ids::random_bytes};

/// Start of every inference key.
const KEY_START: &str = "vw_";
/// Characters of base64url that 32 bytes make.
const BODY: usize = 43;

/// 43 characters of base64url: a cookie value or a CSRF proof.
pub(crate) fn random_text() -> String {
    URL_SAFE_NO_PAD.encode(random_bytes::<32>())
}

/// The secret of a new inference key.
pub(crate) fn random_key() -> Secret<String> {
    Secret::new(format!("{KEY_START}{}", random_text()))
}

/// The hash under which a secret is kept.
pub(crate) fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// Whether a text has the form of an inference key.
pub(crate) fn looks_like_key(text: &str) -> bool {
    text.strip_prefix(KEY_START).is_some_and(|body| body.len() == BODY && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_cut_while_copying_is_told_apart_from_an_unknown_one() {
        let key = random_key();
        assert!(looks_like_key(key.expose()));
        assert!(!looks_like_key(&key.expose()[..20]));
        for bad in ["", "vw_", "sk-abc", &format!("{} ", key.expose()), &format!("{}x", key.expose())] {
            assert!(!looks_like_key(bad), "{bad:?}");
        }
    }

    #[test]
    fn the_kept_hash_is_plain_sha_256_so_that_backups_stay_readable() {
        assert_eq!(digest("abc")[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
