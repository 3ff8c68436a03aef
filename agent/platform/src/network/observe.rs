//! What the network service says of every port, out of one listing of its objects. Pure.

use std::{collections::HashMap, net::IpAddr};

use warden_domain::network::{Assigned, Interface, LinkState};
use zbus::{OwnedObjectPath, OwnedVariant, Variant};

use super::{
    profile::{addresses, dicts, text_of, texts_of},
    proxies::Objects,
};

const DEVICE: &str = "org.freedesktop.NetworkManager.Device";
const WIRED: &str = "org.freedesktop.NetworkManager.Device.Wired";
const ACTIVE: &str = "org.freedesktop.NetworkManager.Connection.Active";
const PROFILE: &str = "org.freedesktop.NetworkManager.Settings.Connection";
const CHECKPOINT: &str = "org.freedesktop.NetworkManager.Checkpoint";
const IP4: &str = "org.freedesktop.NetworkManager.IP4Config";
const IP6: &str = "org.freedesktop.NetworkManager.IP6Config";

/// Kinds of device that are a wired port: an adapter, and one end of a virtual cable (which is a port inside a container).
const PORTS: [u32; 2] = [1, 20];

/// The device has its settings.
pub const ACTIVATED: u32 = 100;
/// The device could not use them.
pub const FAILED: u32 = 120;
/// The network service leaves the device alone.
pub const UNMANAGED: u32 = 10;
/// The device has no settings in use.
pub const DISCONNECTED: u32 = 30;

/// One port with the paths by which it is spoken of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// As the document shows it; its `config` is still empty.
    pub interface: Interface,
    /// The device.
    pub device: OwnedObjectPath,
    /// The connection in use, and its profile.
    pub active: Option<OwnedObjectPath>,
    /// The profile in use.
    pub profile: Option<OwnedObjectPath>,
    /// The service's own number for the state.
    pub state: u32,
    /// Its number for the reason of that state.
    pub reason: u32,
}

/// Every wired port, by name.
#[must_use]
pub fn ports(objects: &Objects) -> Vec<Seen> {
    let mut seen: Vec<Seen> = objects.iter().filter_map(|(path, interfaces)| port(objects, path, interfaces)).collect();
    seen.sort_by(|a, b| a.interface.name.cmp(&b.interface.name));
    seen
}

/// Paths of all profiles.
#[must_use]
pub fn profiles(objects: &Objects) -> Vec<OwnedObjectPath> {
    let mut found: Vec<_> = objects.iter().filter(|(_, i)| i.contains_key(PROFILE)).map(|(path, _)| path.clone()).collect();
    found.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    found
}

/// Whether a profile lies on the disk. What was only tried is kept below `/run`, where it outlives a restart of the network service.
#[must_use]
pub fn saved(objects: &Objects, profile: &OwnedObjectPath) -> bool {
    let Some(properties) = objects.get(profile).and_then(|interfaces| interfaces.get(PROFILE)) else { return false };
    let unsaved = properties.get("Unsaved").is_some_and(|v| matches!(&**v, Variant::Bool(true)));
    let file = text(properties, "Filename").unwrap_or_default();
    !unsaved && !file.is_empty() && !file.starts_with("/run/")
}

/// Paths of the checkpoints that wait for their end.
#[must_use]
pub fn checkpoints(objects: &Objects) -> Vec<OwnedObjectPath> {
    objects.iter().filter(|(_, i)| i.contains_key(CHECKPOINT)).map(|(path, _)| path.clone()).collect()
}

type Properties = HashMap<String, OwnedVariant>;

fn port(objects: &Objects, path: &OwnedObjectPath, interfaces: &HashMap<String, Properties>) -> Option<Seen> {
    let device = interfaces.get(DEVICE)?;
    if !PORTS.contains(&number(device, "DeviceType")?) {
        return None;
    }
    let wired = interfaces.get(WIRED);
    let state = number(device, "State").unwrap_or(0);
    let reason = device.get("StateReason").and_then(|v| {
        let Variant::Structure(parts) = &**v else { return None };
        if let Some(Variant::U32(reason)) = parts.fields().get(1) { Some(*reason) } else { None }
    });
    let carrier = wired.and_then(|w| w.get("Carrier")).and_then(|v| if let Variant::Bool(b) = &**v { Some(*b) } else { None });
    let active = target(device, "ActiveConnection");
    let of = |key: &str, interface: &str| target(device, key).and_then(|p| objects.get(&p)).and_then(|i| i.get(interface));
    let (four, six) = (of("Ip4Config", IP4), of("Ip6Config", IP6));
    let mut interface = Interface {
        name: text(device, "Interface")?,
        mac: text(device, "HwAddress").or_else(|| wired.and_then(|w| text(w, "HwAddress"))),
        state: word(state, carrier),
        speed_mbit: wired.and_then(|w| number(w, "Speed")).filter(|speed| *speed > 0),
        addresses: Vec::new(),
        gateways: Vec::new(),
        dns: Vec::new(),
        search: Vec::new(),
        config: None,
    };
    for config in [four, six].into_iter().flatten() {
        fill(&mut interface, config);
    }
    let profile = active.as_ref().and_then(|a| objects.get(a)).and_then(|i| i.get(ACTIVE)).and_then(|a| target(a, "Connection"));
    Some(Seen { interface, device: path.clone(), active, profile, state, reason: reason.unwrap_or(0) })
}

fn fill(interface: &mut Interface, config: &Properties) {
    if let Some(list) = config.get("AddressData") {
        let usable = |ip: &IpAddr| match ip {
            IpAddr::V4(_) => true,
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        };
        interface.addresses.extend(addresses(list).into_iter().filter(|(ip, _)| usable(ip)).map(|(address, prefix)| Assigned { address, prefix }));
    }
    interface.gateways.extend(text(config, "Gateway").and_then(|g| g.parse::<IpAddr>().ok()));
    if let Some(list) = config.get("NameserverData") {
        let servers = dicts(list);
        interface
            .dns
            .extend(servers.iter().filter_map(|one| if let Some(Variant::Str(ip)) = one.get("address") { ip.parse::<IpAddr>().ok() } else { None }));
    } else if let Some(list) = config.get("Nameservers") {
        interface.dns.extend(raw_addresses(list));
    }
    for key in ["Searches", "Domains"] {
        for domain in config.get(key).map(texts_of).unwrap_or_default() {
            if !interface.search.contains(&domain) {
                interface.search.push(domain);
            }
        }
    }
}

/// Name servers of IPv6 come as lists of sixteen bytes.
fn raw_addresses(value: &OwnedVariant) -> Vec<IpAddr> {
    let Variant::Array(list) = &**value else { return Vec::new() };
    list.iter()
        .filter_map(|item| {
            let Variant::Array(bytes) = item else { return None };
            let bytes: Vec<u8> = bytes.iter().filter_map(|b| if let Variant::U8(b) = b { Some(*b) } else { None }).collect();
            <[u8; 16]>::try_from(bytes).ok().map(|octets| IpAddr::from(std::net::Ipv6Addr::from(octets)))
        })
        .collect()
}

fn word(state: u32, carrier: Option<bool>) -> LinkState {
    match state {
        UNMANAGED => LinkState::Unmanaged,
        20 | DISCONNECTED if carrier == Some(false) => LinkState::NoCable,
        DISCONNECTED | 110 => LinkState::Disconnected,
        40..=90 => LinkState::Connecting,
        ACTIVATED => LinkState::Connected,
        FAILED => LinkState::Failed,
        _ => LinkState::Unknown,
    }
}

fn text(properties: &Properties, key: &str) -> Option<String> {
    properties.get(key).and_then(text_of)
}

fn number(properties: &Properties, key: &str) -> Option<u32> {
    properties.get(key).and_then(|v| if let Variant::U32(n) = &**v { Some(*n) } else { None })
}

/// An object another one points to; `/` points to none.
fn target(properties: &Properties, key: &str) -> Option<OwnedObjectPath> {
    let value = properties.get(key)?;
    if let Variant::ObjectPath(path) = &**value { Some(OwnedObjectPath::from(path.to_owned())).filter(|p| p.as_str() != "/") } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned<'a>(value: impl Into<Variant<'a>>) -> OwnedVariant {
        OwnedVariant::try_from(value.into()).unwrap()
    }

    fn path(text: &str) -> OwnedObjectPath {
        OwnedObjectPath::try_from(text).unwrap()
    }

    fn listing(state: u32, kind: u32, carrier: bool) -> Objects {
        let of = |items: Vec<(&str, OwnedVariant)>| items.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Properties>();
        let one = |list: Vec<(&str, Variant<'_>)>| owned(vec![list.into_iter().collect::<HashMap<_, _>>()]);
        let device = of(vec![
            ("Interface", owned("eth0")),
            ("DeviceType", owned(kind)),
            ("State", owned(state)),
            ("StateReason", owned((state, 5u32))),
            ("HwAddress", owned("52:54:00:12:34:56")),
            ("ActiveConnection", owned(zbus::ObjectPath::try_from("/a/1").unwrap())),
            ("Ip4Config", owned(zbus::ObjectPath::try_from("/c/1").unwrap())),
            ("Ip6Config", owned(zbus::ObjectPath::try_from("/").unwrap())),
        ]);
        let ip4 = of(vec![
            ("AddressData", one(vec![("address", "10.0.0.5".into()), ("prefix", 24u32.into())])),
            ("Gateway", owned("10.0.0.1")),
            ("NameserverData", one(vec![("address", "10.0.0.2".into())])),
            ("Searches", owned(vec!["example.com"])),
        ]);
        Objects::from([
            (
                path("/d/1"),
                HashMap::from([(DEVICE.to_owned(), device), (WIRED.to_owned(), of(vec![("Carrier", owned(carrier)), ("Speed", owned(0u32))]))]),
            ),
            (path("/c/1"), HashMap::from([(IP4.to_owned(), ip4)])),
            (path("/a/1"), HashMap::from([(ACTIVE.to_owned(), of(vec![("Connection", owned(zbus::ObjectPath::try_from("/s/1").unwrap()))]))])),
            (path("/s/1"), HashMap::from([(PROFILE.to_owned(), Properties::new())])),
        ])
    }

    #[test]
    fn a_port_is_shown_with_all_that_is_known_and_nothing_that_is_not() {
        let seen = ports(&listing(100, 1, true));
        let port = &seen[0].interface;
        assert_eq!(port.state, LinkState::Connected);
        assert_eq!(port.addresses[0].to_string(), "10.0.0.5/24");
        assert_eq!(port.gateways, ["10.0.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(port.dns, ["10.0.0.2".parse::<IpAddr>().unwrap()]);
        assert_eq!(port.search, ["example.com"]);
        assert_eq!(port.speed_mbit, None, "a speed of nought is an unknown speed");
        assert_eq!(seen[0].profile, Some(path("/s/1")));
        assert_eq!(seen[0].reason, 5);
    }

    #[test]
    fn states_keep_a_missing_cable_and_an_unmanaged_port_apart() {
        for (state, carrier, word) in [
            (10, true, LinkState::Unmanaged),
            (20, false, LinkState::NoCable),
            (30, true, LinkState::Disconnected),
            (70, true, LinkState::Connecting),
            (120, true, LinkState::Failed),
            (0, true, LinkState::Unknown),
        ] {
            assert_eq!(ports(&listing(state, 1, carrier))[0].interface.state, word, "{state}");
        }
    }

    #[test]
    fn loopback_and_wireless_are_not_wired_ports() {
        for kind in [2, 32, 13] {
            assert!(ports(&listing(100, kind, true)).is_empty(), "{kind}");
        }
    }
}
