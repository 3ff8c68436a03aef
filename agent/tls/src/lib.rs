//! The front door: the box's own certificate authority, a certificate for everything it is called and every address it has, the
//! names it answers to, and the decision about the plain port.
//!
//! In: a folder on the state partition, the store, and on request the names and addresses of the moment. Out: the port `Front` of the
//! domain and a configuration for TLS servers that always shows the newest certificate. This crate opens no socket; when to make a new
//! certificate is decided in `decide`, without I/O.

mod authority;
mod decide;
mod keep;
mod leaf;
mod names;
mod pace;
mod resolver;
mod room;

pub use decide::{LeafFacts, Reason, needs_reissue};
pub use names::{Wanted, valid_name};
pub use room::{Found, FrontRoom, server_config};

/// SHA-256 of a certificate as people compare it: pairs of upper-case hexadecimal digits with colons between.
#[must_use]
pub fn fingerprint(der: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(der);
    digest.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_fingerprint_looks_like_the_one_a_browser_shows() {
        let text = super::fingerprint(b"abc");
        assert!(text.starts_with("BA:78:16:BF:8F:01:CF:EA:") && text.len() == 32 * 3 - 1, "{text}");
    }
}
