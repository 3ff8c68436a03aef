//! One TLS handshake, looked at closely: which certificate was shown, which protocol was agreed on, whether the name was believed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// What a handshake showed.
#[derive(Clone, Debug)]
pub struct Shaken {
    /// The certificate shown.
    pub leaf: Vec<u8>,
    /// The application protocol agreed on.
    pub protocol: String,
    /// `TLSv1_3` or older.
    pub version: String,
}

/// A connection after its handshake.
pub type Open = StreamOwned<ClientConnection, TcpStream>;

/// Shakes hands with an address under a name (or an address as name), trusting one authority only.
///
/// # Errors
/// A sentence with the cause: no connection, or a certificate that is not believed.
pub fn shake(address: SocketAddr, name: &str, authority: &str, protocols: &[&str]) -> Result<(Shaken, Open), String> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(authority.as_bytes()).map_err(|e| format!("the authority cannot be read: {e:?}"))?;
    roots.add(certificate).map_err(|e| format!("the authority is none: {e}"))?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).map_err(|e| format!("{name}: {e}"))?;
    let connection = ClientConnection::new(Arc::new(config), name.clone()).map_err(|e| e.to_string())?;
    let said = |e: std::io::Error| format!("{address} as {}: {e}", name.to_str());
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).map_err(said)?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(said)?;
    let mut open = StreamOwned::new(connection, stream);
    while open.conn.is_handshaking() {
        open.conn.complete_io(&mut open.sock).map_err(said)?;
    }
    let leaf = open.conn.peer_certificates().and_then(|c| c.first()).map(|c| c.to_vec()).ok_or("no certificate was shown")?;
    let protocol = open.conn.alpn_protocol().map(|p| String::from_utf8_lossy(p).into_owned()).unwrap_or_default();
    let version = open.conn.protocol_version().map(|v| format!("{v:?}")).unwrap_or_default();
    Ok((Shaken { leaf, protocol, version }, open))
}

/// One HTTP/1.1 request over an open connection that stays open; returns the head of the answer.
///
/// # Errors
/// A sentence when the connection is gone.
pub fn ask(open: &mut Open, host: &str) -> Result<String, String> {
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n");
    open.write_all(request.as_bytes()).map_err(|e| format!("the open connection takes no request: {e}"))?;
    let mut answer = [0u8; 4096];
    let mut head = String::new();
    loop {
        let n = open.read(&mut answer).map_err(|e| format!("the open connection gives no answer: {e}"))?;
        head.push_str(&String::from_utf8_lossy(&answer[..n]));
        if n == 0 || head.contains("}}") || head.len() > 16_384 {
            return Ok(head);
        }
    }
}
