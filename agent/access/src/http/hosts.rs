//! Which Host headers are ours. A page of another site whose DNS name is turned to point at the box (DNS rebinding) carries that
//! name in Host, so only known names, loopback and addresses of this machine are answered.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

/// Whether an IP address is one of this machine.
pub type OwnAddress = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Whether a DNS name (without port, without final dot) is one of this machine.
pub type OwnName = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The Host allow-list. Ports are not compared: a forwarded port is fine.
#[derive(Clone)]
pub struct HostRules {
    /// Asked for every DNS name; upper and lower case must be the same to it.
    pub own_names: OwnName,
    /// Whether `localhost`, `*.localhost` and every loopback address are ours.
    pub any_loopback: bool,
    /// Asked for every other IP literal.
    pub own_addresses: OwnAddress,
}

impl std::fmt::Debug for HostRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostRules").field("any_loopback", &self.any_loopback).finish_non_exhaustive()
    }
}

impl HostRules {
    /// Whether a Host header (or `:authority`) is one of ours.
    #[must_use]
    pub fn allow(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else { return false };
        if let Some(ip) = address(name) {
            let ip = ip.to_canonical();
            return if ip.is_loopback() { self.any_loopback } else { (self.own_addresses)(ip) };
        }
        let name = name.strip_suffix('.').unwrap_or(name);
        let local = name.eq_ignore_ascii_case("localhost")
            || (name.len() > 10 && name.is_char_boundary(name.len() - 10) && name[name.len() - 10..].eq_ignore_ascii_case(".localhost"));
        (self.any_loopback && local) || (self.own_names)(name)
    }
}

/// The host without its port; `None` when it is no host at all.
#[must_use]
pub fn without_port(host: &str) -> Option<&str> {
    let (name, rest) = if host.starts_with('[') {
        let end = host.find(']')? + 1;
        (&host[..end], &host[end..])
    } else {
        host.split_at(host.find(':').unwrap_or(host.len()))
    };
    let port_fine = rest.is_empty() || rest.strip_prefix(':').is_some_and(|p| p.len() <= 5 && p.bytes().all(|b| b.is_ascii_digit()));
    (port_fine && !name.is_empty()).then_some(name)
}

fn address(name: &str) -> Option<IpAddr> {
    match name.strip_prefix('[').and_then(|n| n.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => name.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> HostRules {
        HostRules {
            own_names: Arc::new(|name| name.eq_ignore_ascii_case("warden.local")),
            any_loopback: true,
            own_addresses: Arc::new(|ip| ip.to_string() == "192.168.1.20" || ip.to_string() == "fd00::5"),
        }
    }

    #[test]
    fn own_names_and_addresses_are_answered_on_any_port() {
        for host in [
            "warden.local",
            "WARDEN.local:8443",
            "warden.local.",
            "localhost:8080",
            "app.localhost",
            "127.0.0.1",
            "127.0.0.9:1",
            "[::1]:8080",
            "[::1]",
            "192.168.1.20",
            "192.168.1.20:443",
            "[fd00::5]",
            "[::ffff:192.168.1.20]:80",
        ] {
            assert!(rules().allow(host), "{host}");
        }
    }

    #[test]
    fn a_rebound_name_is_refused() {
        for host in [
            "evil.example",
            "warden.local.evil.example",
            "localhost.evil.example",
            "evillocalhost",
            "192.168.1.21",
            "[fd00::6]",
            "",
            ":80",
            "127.0.0.1:80:90",
            "127.0.0.1@evil.example",
            "warden.local:x",
            "[::1",
            "[::1]evil.example",
            "::1",
            "ü.localhos",
        ] {
            assert!(!rules().allow(host), "{host}");
        }
    }
}
