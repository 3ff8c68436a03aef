//! The certificate for a new connection: always the newest. Connections that are open keep theirs until they end.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::leaf::Shown;

/// Shows one certificate whatever name was asked for: clients that ask by address send no name at all.
pub(crate) struct Newest(pub(crate) Arc<ArcSwap<Shown>>);

impl std::fmt::Debug for Newest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Newest")
    }
}

impl ResolvesServerCert for Newest {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.load().key))
    }
}
