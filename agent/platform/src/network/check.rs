//! Whether wanted settings can work at all, before anything is touched. Pure: settings and what the ports are now go in, a refusal
//! with a sentence or a list of warnings comes out.

use std::net::{IpAddr, Ipv6Addr};

use warden_domain::{
    Problem, ProblemKind,
    address::{check_ipv4, mask4, network4},
    network::{Interface, InterfaceConfig, Ipv4Config, Ipv6Config},
};

const MOST_SERVERS: usize = 3;
const MOST_DOMAINS: usize = 6;

fn refused(param: &str, message: String, hint: &str) -> Problem {
    Problem::new(ProblemKind::Invalid, message).hint(hint).param(param)
}

/// Checks settings for one port of several.
///
/// # Errors
/// `Invalid`, naming the value, why it cannot work, and what to give instead.
pub fn check(interface: &str, wanted: &InterfaceConfig, all: &[Interface]) -> Result<Vec<String>, Problem> {
    let mut warnings = Vec::new();
    if wanted.ipv4 == Ipv4Config::Off && wanted.ipv6 == Ipv6Config::Off {
        return Err(refused("ipv4", format!("{interface} would have no address at all: IPv4 and IPv6 are both off."), "Leave one of them on."));
    }
    if let Ipv4Config::Static { address, prefix, gateway } = wanted.ipv4 {
        check_ipv4(address, prefix, gateway)?;
        if gateway.is_none() {
            warnings.push(format!("Without a gateway {interface} reaches its own network ({}) only.", network4(address, prefix)));
        }
    }
    if let Ipv6Config::Static { address, prefix, gateway } = wanted.ipv6 {
        ipv6(address, prefix, gateway)?;
    }
    for fixed in wanted.fixed() {
        others(interface, fixed, wanted, all, &mut warnings)?;
    }
    names(wanted)?;
    if wanted.dns.is_empty() && !wanted.fixed().is_empty() && wanted.ipv4 != Ipv4Config::Dhcp && wanted.ipv6 != Ipv6Config::Auto {
        warnings.push(format!("Without a name server {interface} finds other machines by address only."));
    }
    Ok(warnings)
}

fn mask6(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0)
}

/// Whether two addresses lie in the network that a prefix makes.
#[must_use]
pub fn same_network(a: IpAddr, b: IpAddr, prefix: u8) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()) & mask4(prefix) == 0,
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()) & mask6(prefix) == 0,
        _ => false,
    }
}

fn ipv6(address: Ipv6Addr, prefix: u8, gateway: Option<Ipv6Addr>) -> Result<(), Problem> {
    let why = if address.is_unspecified() || address.is_loopback() {
        Some("never leaves the machine")
    } else if address.is_multicast() {
        Some("is a multicast address")
    } else if address.is_unicast_link_local() {
        Some("is a link-local address, which machines give themselves")
    } else if address.to_ipv4_mapped().is_some() {
        Some("is an IPv4 address in disguise")
    } else {
        None
    };
    if let Some(why) = why {
        return Err(refused("ipv6.address", format!("{address} {why}; it cannot be the address of this box."), "Give an address of your network."));
    }
    if !(1..=127).contains(&prefix) {
        return Err(refused("ipv6.prefix", format!("The prefix /{prefix} makes no network with another machine in it."), "Most networks use 64."));
    }
    let Some(gateway) = gateway else { return Ok(()) };
    if gateway == address || gateway.is_unspecified() || gateway.is_multicast() || gateway.is_loopback() {
        return Err(refused("ipv6.gateway", format!("{gateway} cannot be a gateway of this box."), "Give the router's address."));
    }
    if !gateway.is_unicast_link_local() && !same_network(gateway.into(), address.into(), prefix) {
        return Err(refused(
            "ipv6.gateway",
            format!("The gateway {gateway} lies outside the network of {address}/{prefix}, so the box could never reach it."),
            "Give a gateway inside that network or its link-local address (fe80::…).",
        ));
    }
    Ok(())
}

/// The same address on another port, or the same network on two.
fn others(interface: &str, fixed: IpAddr, wanted: &InterfaceConfig, all: &[Interface], warnings: &mut Vec<String>) -> Result<(), Problem> {
    let prefix = match (&wanted.ipv4, &wanted.ipv6, fixed) {
        (Ipv4Config::Static { prefix, .. }, _, IpAddr::V4(_)) | (_, Ipv6Config::Static { prefix, .. }, IpAddr::V6(_)) => *prefix,
        _ => return Ok(()),
    };
    for other in all.iter().filter(|other| other.name != interface) {
        let planned = other.config.iter().flat_map(InterfaceConfig::fixed);
        if planned.chain(other.addresses.iter().map(|a| a.address)).any(|address| address == fixed) {
            return Err(refused(
                if fixed.is_ipv4() { "ipv4.address" } else { "ipv6.address" },
                format!("{fixed} is the address of {} on this same box.", other.name),
                "Give each port an address of its own.",
            ));
        }
        if let Some(near) = other.addresses.iter().find(|a| same_network(a.address, fixed, prefix.min(a.prefix))) {
            warnings.push(format!("{} is in the same network ({near}); answers may leave through either port.", other.name));
        }
    }
    Ok(())
}

fn names(wanted: &InterfaceConfig) -> Result<(), Problem> {
    if wanted.dns.len() > MOST_SERVERS {
        return Err(refused(
            "dns",
            format!("{} name servers are given; at most {MOST_SERVERS} are asked.", wanted.dns.len()),
            "Keep the first ones.",
        ));
    }
    if let Some(bad) = wanted.dns.iter().find(|ip| ip.is_unspecified() || ip.is_multicast()) {
        return Err(refused("dns", format!("{bad} cannot be a name server."), "Give the address of one."));
    }
    if wanted.search.len() > MOST_DOMAINS {
        return Err(refused("search", format!("More than {MOST_DOMAINS} search domains are given."), "Keep those in which you use short names."));
    }
    match wanted.search.iter().find(|domain| !is_domain(domain)) {
        Some(bad) => Err(refused("search", format!("{bad:?} is not a domain."), "Give one such as example.com.")),
        None => Ok(()),
    }
}

fn is_domain(text: &str) -> bool {
    let label = |l: &str| {
        (1..=63).contains(&l.len())
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use warden_domain::network::{Assigned, LinkState};

    fn fixed(address: &str, prefix: u8, gateway: Option<&str>) -> InterfaceConfig {
        InterfaceConfig {
            ipv4: Ipv4Config::Static { address: address.parse().unwrap(), prefix, gateway: gateway.map(|g| g.parse().unwrap()) },
            ipv6: Ipv6Config::Off,
            ..InterfaceConfig::default()
        }
    }

    fn fixed6(address: &str, prefix: u8, gateway: Option<&str>) -> InterfaceConfig {
        InterfaceConfig {
            ipv6: Ipv6Config::Static { address: address.parse().unwrap(), prefix, gateway: gateway.map(|g| g.parse().unwrap()) },
            ..InterfaceConfig::default()
        }
    }

    fn port(name: &str, address: &str, prefix: u8) -> Interface {
        Interface {
            name: name.into(),
            mac: None,
            state: LinkState::Connected,
            speed_mbit: None,
            addresses: vec![Assigned { address: address.parse().unwrap(), prefix }],
            gateways: vec![],
            dns: vec![],
            search: vec![],
            config: None,
        }
    }

    #[test]
    fn settings_that_could_never_work_are_refused_with_the_field_and_a_way_out() {
        for (wanted, param, word) in [
            (fixed("10.0.0.5", 33, None), "ipv4.prefix", "/33"),
            (fixed("10.0.0.5", 0, None), "ipv4.prefix", "/0"),
            (fixed("10.0.0.5", 32, None), "ipv4.prefix", "/32"),
            (fixed("10.0.0.0", 24, None), "ipv4.address", "network itself"),
            (fixed("10.0.0.255", 24, None), "ipv4.address", "broadcast"),
            (fixed("127.0.0.1", 24, None), "ipv4.address", "loopback"),
            (fixed("224.0.0.5", 24, None), "ipv4.address", "multicast"),
            (fixed("169.254.1.1", 16, None), "ipv4.address", "link-local"),
            (fixed("255.255.255.255", 24, None), "ipv4.address", "reserved"),
            (fixed("10.0.0.5", 24, Some("10.0.1.1")), "ipv4.gateway", "outside 10.0.0.0/24"),
            (fixed("10.0.0.5", 24, Some("10.0.0.5")), "ipv4.gateway", "itself"),
            (fixed("10.0.0.5", 24, Some("10.0.0.255")), "ipv4.gateway", "broadcast"),
            (fixed6("fe80::1", 64, None), "ipv6.address", "link-local"),
            (fixed6("fd00::1", 129, None), "ipv6.prefix", "/129"),
            (fixed6("fd00::1", 64, Some("fd01::1")), "ipv6.gateway", "outside"),
            (fixed6("::ffff:10.0.0.1", 96, None), "ipv6.address", "disguise"),
            (InterfaceConfig { ipv4: Ipv4Config::Off, ipv6: Ipv6Config::Off, ..InterfaceConfig::default() }, "ipv4", "no address"),
            (InterfaceConfig { dns: vec!["0.0.0.0".parse().unwrap()], ..InterfaceConfig::default() }, "dns", "0.0.0.0"),
            (InterfaceConfig { search: vec!["a..b".into()], ..InterfaceConfig::default() }, "search", "a..b"),
        ] {
            let problem = check("eth0", &wanted, &[]).unwrap_err();
            assert_eq!(problem.param.as_deref(), Some(param), "{problem:?}");
            assert!(problem.message.contains(word), "{problem:?}");
            assert!(problem.hint.is_some(), "{problem:?}");
        }
    }

    #[test]
    fn usual_settings_pass() {
        for wanted in [
            InterfaceConfig::default(),
            fixed("192.168.1.20", 24, Some("192.168.1.1")),
            fixed("10.1.2.3", 31, Some("10.1.2.2")),
            fixed6("fd00::20", 64, Some("fe80::1")),
        ] {
            check("eth0", &wanted, &[port("eth0", "192.168.1.20", 24)]).unwrap();
        }
    }

    #[test]
    fn an_address_of_another_port_is_refused_and_a_shared_network_only_warned_of() {
        let all = [port("eth1", "10.0.0.5", 24)];
        let problem = check("eth0", &fixed("10.0.0.5", 24, None), &all).unwrap_err();
        assert!(problem.message.contains("eth1"), "{problem:?}");
        let warnings = check("eth0", &fixed("10.0.0.6", 24, Some("10.0.0.1")), &all).unwrap();
        assert!(warnings.iter().any(|w| w.contains("eth1")), "{warnings:?}");
    }

    proptest::proptest! {
        #[test]
        fn no_accepted_gateway_is_out_of_reach(address: u32, prefix in 0u8..=40, gateway: u32) {
            let (address, gateway) = (Ipv4Addr::from_bits(address), Ipv4Addr::from_bits(gateway));
            if check_ipv4(address, prefix, Some(gateway)).is_ok() {
                proptest::prop_assert!(same_network(address.into(), gateway.into(), prefix) && address != gateway);
            }
        }
    }
}
