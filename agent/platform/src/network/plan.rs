//! What a change would do, in sentences an admin can judge. Pure.

use std::net::IpAddr;

use warden_domain::network::{Interface, InterfaceConfig, Ipv4Config, Ipv6Config, NetworkPlan};

/// Compares what a port is told with what is wanted. `url` gives the console's address at an IP address.
#[must_use]
pub fn plan(present: &Interface, wanted: &InterfaceConfig, warnings: Vec<String>, url: &dyn Fn(IpAddr) -> String) -> NetworkPlan {
    let mut changes = Vec::new();
    let name = &present.name;
    // A fixed address is known before the network service lists it among those in use.
    let was = |v4: bool| {
        let told = match present.config.as_ref().map(|c| (&c.ipv4, &c.ipv6)) {
            Some((Ipv4Config::Static { address, prefix, .. }, _)) if v4 => Some(format!("{address}/{prefix}")),
            Some((_, Ipv6Config::Static { address, prefix, .. })) if !v4 => Some(format!("{address}/{prefix}")),
            _ => None,
        };
        let now = || present.addresses.iter().filter(|a| a.address.is_ipv4() == v4).map(ToString::to_string).collect::<Vec<_>>();
        told.unwrap_or_else(|| if now().is_empty() { "no address".to_owned() } else { now().join(", ") })
    };
    if present.config.as_ref().map(|c| &c.ipv4) != Some(&wanted.ipv4) {
        let from = was(true);
        changes.push(match &wanted.ipv4 {
            Ipv4Config::Dhcp => format!("{name} asks the DHCP server for its IPv4 address; it gives up {from}."),
            Ipv4Config::Off => format!("{name} has no IPv4 address any more; it gives up {from}."),
            Ipv4Config::Static { address, prefix, gateway } => {
                let way = gateway.map_or_else(|| "without a gateway".to_owned(), |g| format!("with the gateway {g}"));
                format!("{name} changes from {from} to {address}/{prefix} {way}.")
            }
        });
    }
    if present.config.as_ref().map(|c| &c.ipv6) != Some(&wanted.ipv6) {
        let from = was(false);
        changes.push(match &wanted.ipv6 {
            Ipv6Config::Auto => format!("{name} takes its IPv6 address from the router; it gives up {from}."),
            Ipv6Config::Off => format!("{name} has no IPv6 address any more; it gives up {from}."),
            Ipv6Config::Static { address, prefix, .. } => format!("{name} changes its IPv6 address from {from} to {address}/{prefix}."),
        });
    }
    if present.config.as_ref().map(|c| &c.dns) != Some(&wanted.dns) {
        let list: Vec<String> = wanted.dns.iter().map(ToString::to_string).collect();
        changes.push(if list.is_empty() {
            format!("{name} asks the name servers that DHCP or the router names.")
        } else {
            format!("{name} asks the name servers {}.", list.join(", "))
        });
    }
    if present.config.as_ref().map(|c| &c.search) != Some(&wanted.search) {
        changes.push(if wanted.search.is_empty() {
            format!("{name} looks short names up in no domain of its own.")
        } else {
            format!("{name} looks short names up in {}.", wanted.search.join(", "))
        });
    }
    NetworkPlan { changes, warnings, console_urls: where_to(present, wanted).into_iter().map(url).collect() }
}

/// Addresses of the port after the change, as far as they can be known: fixed ones, and present ones whose method stays.
fn where_to(present: &Interface, wanted: &InterfaceConfig) -> Vec<IpAddr> {
    let mut to = wanted.fixed();
    if let Some(config) = &present.config {
        let stays = |ip: &IpAddr| {
            if ip.is_ipv4() {
                wanted.ipv4 == Ipv4Config::Dhcp && config.ipv4 == Ipv4Config::Dhcp
            } else {
                wanted.ipv6 == Ipv6Config::Auto && config.ipv6 == Ipv6Config::Auto
            }
        };
        to.extend(present.addresses.iter().map(|a| a.address).filter(stays));
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use warden_domain::network::{Assigned, LinkState};

    fn present() -> Interface {
        Interface {
            name: "eth0".into(),
            mac: None,
            state: LinkState::Connected,
            speed_mbit: None,
            addresses: vec![Assigned { address: "10.0.0.5".parse().unwrap(), prefix: 24 }],
            gateways: vec![],
            dns: vec![],
            search: vec![],
            config: Some(InterfaceConfig::default()),
        }
    }

    #[test]
    fn a_new_address_is_named_with_the_old_one_and_the_consoles_place() {
        let wanted = InterfaceConfig {
            ipv4: Ipv4Config::Static { address: "10.0.0.50".parse().unwrap(), prefix: 24, gateway: None },
            ..InterfaceConfig::default()
        };
        let plan = plan(&present(), &wanted, vec![], &|ip| format!("https://{ip}/"));
        assert_eq!(plan.changes, ["eth0 changes from 10.0.0.5/24 to 10.0.0.50/24 without a gateway."]);
        assert_eq!(plan.console_urls, ["https://10.0.0.50/"]);
    }

    #[test]
    fn settings_that_are_there_already_change_nothing() {
        let plan = plan(&present(), &InterfaceConfig::default(), vec![], &|ip| ip.to_string());
        assert!(plan.changes.is_empty());
        assert_eq!(plan.console_urls, ["10.0.0.5"]);
    }

    #[test]
    fn an_address_only_dhcp_knows_is_not_invented() {
        let mut now = present();
        now.config = Some(InterfaceConfig {
            ipv4: Ipv4Config::Static { address: "10.0.0.5".parse().unwrap(), prefix: 24, gateway: None },
            ..InterfaceConfig::default()
        });
        assert!(plan(&now, &InterfaceConfig::default(), vec![], &|ip| ip.to_string()).console_urls.is_empty());
    }
}
