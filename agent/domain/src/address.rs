//! Whether an IPv4 address with prefix and gateway can work at all. Pure; the Network page and the installer's answer file share it.

use std::net::Ipv4Addr;

use crate::{Problem, ProblemKind};

fn refused(param: &str, message: String, hint: &str) -> Problem {
    Problem::new(ProblemKind::Invalid, message).hint(hint).param(param)
}

/// The network that an address and its prefix lie in, as people write it.
#[must_use]
pub fn network4(address: Ipv4Addr, prefix: u8) -> String {
    format!("{}/{prefix}", Ipv4Addr::from_bits(address.to_bits() & mask4(prefix)))
}

/// The bits of the network part.
#[must_use]
pub fn mask4(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

/// Why an IPv4 address is not one a machine can have.
fn odd4(address: Ipv4Addr) -> Option<&'static str> {
    if address.is_unspecified() || address.octets()[0] == 0 {
        Some("means \"this network\"")
    } else if address.is_loopback() {
        Some("is a loopback address and never leaves the machine")
    } else if address.is_multicast() {
        Some("is a multicast address")
    } else if address.is_link_local() {
        Some("is a link-local address, which machines give themselves")
    } else if address.octets()[0] >= 240 {
        Some("is reserved")
    } else {
        None
    }
}

/// Whether a machine can have this address: the rule for every place where somebody types one.
///
/// # Errors
/// `Invalid`, naming the value, why it cannot work, and what to give instead.
pub fn check_ipv4(address: Ipv4Addr, prefix: u8, gateway: Option<Ipv4Addr>) -> Result<(), Problem> {
    if let Some(why) = odd4(address) {
        return Err(refused("ipv4.address", format!("{address} {why}; it cannot be the address of this box."), "Give an address of your network."));
    }
    if !(1..=31).contains(&prefix) {
        return Err(refused(
            "ipv4.prefix",
            format!("The prefix /{prefix} makes no network with another machine in it."),
            "Most networks use 24, which is the mask 255.255.255.0; ask whoever runs the network.",
        ));
    }
    // The network's own and its broadcast address; a /31 has neither.
    let host = address.to_bits() & !mask4(prefix);
    let reserved = |host: u32| prefix < 31 && (host == 0 || host == !mask4(prefix));
    if reserved(host) {
        let which = if host == 0 { "the address of the network itself" } else { "the broadcast address" };
        return Err(refused(
            "ipv4.address",
            format!("{address} is {which} in {}; no machine can have it.", network4(address, prefix)),
            "Give another address, or check the prefix.",
        ));
    }
    let Some(gateway) = gateway else { return Ok(()) };
    if gateway == address {
        return Err(refused("ipv4.gateway", format!("The gateway {gateway} is the address of this box itself."), "Give the router's address."));
    }
    if (gateway.to_bits() ^ address.to_bits()) & mask4(prefix) != 0 {
        return Err(refused(
            "ipv4.gateway",
            format!("The gateway {gateway} lies outside {}, so the box could never reach it.", network4(address, prefix)),
            "Give a gateway inside that network, or correct address and prefix.",
        ));
    }
    if reserved(gateway.to_bits() & !mask4(prefix)) {
        return Err(refused(
            "ipv4.gateway",
            format!("{gateway} is the network or broadcast address of {}; no router can have it.", network4(address, prefix)),
            "Give the router's address.",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_no_machine_can_have_is_refused() {
        let ip = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        assert!(check_ipv4(ip("192.0.2.10"), 24, Some(ip("192.0.2.1"))).is_ok());
        for (address, prefix, gateway) in [
            ("192.0.2.0", 24, "192.0.2.1"),
            ("192.0.2.255", 24, "192.0.2.1"),
            ("192.0.2.10", 0, "192.0.2.1"),
            ("192.0.2.10", 32, "192.0.2.1"),
            ("192.0.2.10", 24, "192.0.3.1"),
            ("192.0.2.10", 24, "192.0.2.10"),
            ("127.0.0.1", 8, "127.0.0.2"),
        ] {
            assert!(check_ipv4(ip(address), prefix, Some(ip(gateway))).is_err(), "{address}/{prefix} by {gateway}");
        }
    }
}
