//! Between an admin's settings of a port and a connection profile of the network service. Pure.
//!
//! A new profile is the old one with other addresses: what this document does not know (MTU, routes, wake-on-LAN) is carried over.

use std::{collections::HashMap, net::IpAddr};

use warden_domain::network::{InterfaceConfig, Ipv4Config, Ipv6Config};
use zbus::{OwnedVariant, Variant};

use super::proxies::Settings;

/// Profiles of ours are called this and the port's name.
pub const OURS: &str = "warden-";
/// How long the network service looks for another owner of a fixed address, in milliseconds.
const DUPLICATE_LOOK_MS: i32 = 1000;
/// Of two profiles for a port the one with the higher priority is used; each new one is one step above.
const FIRST_PRIORITY: i32 = 10;
const LAST_PRIORITY: i32 = 900;

/// Keys of the address sections that are written anew; the rest of a section stays.
const REWRITTEN: [&str; 12] = [
    "method",
    "addresses",
    "address-data",
    "address-labels",
    "gateway",
    "dns",
    "dns-data",
    "dns-search",
    "ignore-auto-dns",
    "may-fail",
    "dad-timeout",
    "never-default",
];

/// Which profile a settings map is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub id: String,
    /// Its UUID.
    pub uuid: String,
    /// The port it is bound to.
    pub interface: Option<String>,
    /// Its priority among several.
    pub priority: i32,
}

impl Identity {
    /// Reads it; missing parts are empty.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let connection = settings.get("connection");
        let text = |key: &str| connection.and_then(|c| c.get(key)).and_then(text_of);
        Self {
            id: text("id").unwrap_or_default(),
            uuid: text("uuid").unwrap_or_default(),
            interface: text("interface-name"),
            priority: connection.and_then(|c| c.get("autoconnect-priority")).map_or(0, |v| if let Variant::I32(n) = &**v { *n } else { 0 }),
        }
    }

    /// Whether the agent made it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.id.starts_with(OURS)
    }
}

/// Reads what a profile tells its port; `None` when it uses a method this document does not know.
#[must_use]
pub fn read(settings: &Settings) -> Option<InterfaceConfig> {
    let section = |name: &str| settings.get(name);
    let ipv4 = match method(section("ipv4")).as_str() {
        "auto" | "" => Ipv4Config::Dhcp,
        "disabled" => Ipv4Config::Off,
        "manual" => {
            let (address, prefix) = first_address(section("ipv4")?)?;
            let IpAddr::V4(address) = address else { return None };
            Ipv4Config::Static { address, prefix, gateway: gateway(section("ipv4")).and_then(|g| g.parse().ok()) }
        }
        _ => return None,
    };
    let ipv6 = match method(section("ipv6")).as_str() {
        "auto" | "dhcp" | "" => Ipv6Config::Auto,
        "disabled" | "ignore" | "link-local" => Ipv6Config::Off,
        "manual" => {
            let (address, prefix) = first_address(section("ipv6")?)?;
            let IpAddr::V6(address) = address else { return None };
            Ipv6Config::Static { address, prefix, gateway: gateway(section("ipv6")).and_then(|g| g.parse().ok()) }
        }
        _ => return None,
    };
    let list = |family: &str, key: &str| section(family).and_then(|s| s.get(key)).map(texts_of).unwrap_or_default();
    let dns = ["ipv4", "ipv6"].iter().flat_map(|f| list(f, "dns-data")).filter_map(|ip| ip.parse().ok()).collect();
    let mut search = list("ipv4", "dns-search");
    for domain in list("ipv6", "dns-search") {
        if !search.contains(&domain) {
            search.push(domain);
        }
    }
    Some(InterfaceConfig { ipv4, ipv6, dns, search })
}

/// A profile for `interface` that does what is wanted, made from the one in use (or from nothing).
#[must_use]
pub fn build(base: Option<&Settings>, interface: &str, uuid: &str, wanted: &InterfaceConfig) -> Settings {
    let mut settings = base.cloned().unwrap_or_default();
    let before = Identity::of(&settings);
    let priority =
        if before.is_ours() && before.priority >= FIRST_PRIORITY && before.priority < LAST_PRIORITY { before.priority + 1 } else { FIRST_PRIORITY };
    let connection = settings.entry("connection".into()).or_default();
    // Bound to the seat of whoever made it, or to a bridge: not ours to carry over.
    for key in ["timestamp", "permissions", "read-only", "zone"] {
        connection.remove(key);
    }
    put(connection, "id", format!("{OURS}{interface}").into());
    put(connection, "uuid", uuid.to_owned().into());
    put(connection, "type", "802-3-ethernet".into());
    put(connection, "interface-name", interface.to_owned().into());
    put(connection, "autoconnect", true.into());
    put(connection, "autoconnect-priority", priority.into());
    settings.entry("802-3-ethernet".into()).or_default();

    let dns_given = !wanted.dns.is_empty();
    let family = |v4: bool| wanted.dns.iter().filter(|ip| ip.is_ipv4() == v4).map(ToString::to_string).collect::<Vec<_>>();
    let ipv4 = cleared(&mut settings, "ipv4");
    match &wanted.ipv4 {
        Ipv4Config::Dhcp => put(ipv4, "method", "auto".into()),
        Ipv4Config::Off => put(ipv4, "method", "disabled".into()),
        Ipv4Config::Static { address, prefix, gateway } => fixed(ipv4, &address.to_string(), *prefix, gateway.map(|g| g.to_string())),
    }
    if wanted.ipv4 != Ipv4Config::Off {
        put(ipv4, "dad-timeout", DUPLICATE_LOOK_MS.into());
        resolve(ipv4, family(true), dns_given, &wanted.search);
    }
    let ipv6 = cleared(&mut settings, "ipv6");
    match &wanted.ipv6 {
        Ipv6Config::Auto => put(ipv6, "method", "auto".into()),
        Ipv6Config::Off => put(ipv6, "method", "disabled".into()),
        Ipv6Config::Static { address, prefix, gateway } => fixed(ipv6, &address.to_string(), *prefix, gateway.map(|g| g.to_string())),
    }
    if wanted.ipv6 != Ipv6Config::Off {
        resolve(ipv6, family(false), dns_given, &wanted.search);
    }
    settings
}

type Section = HashMap<String, OwnedVariant>;

fn cleared<'a>(settings: &'a mut Settings, name: &str) -> &'a mut Section {
    let section = settings.entry(name.into()).or_default();
    for key in REWRITTEN {
        section.remove(key);
    }
    section
}

fn fixed(section: &mut Section, address: &str, prefix: u8, gateway: Option<String>) {
    put(section, "method", "manual".into());
    let mut one: HashMap<&str, Variant<'_>> = HashMap::new();
    one.insert("address", address.into());
    one.insert("prefix", u32::from(prefix).into());
    put(section, "address-data", vec![one].into());
    // Without it a port whose address is taken would count as connected by its other family.
    put(section, "may-fail", false.into());
    if let Some(gateway) = gateway {
        put(section, "gateway", gateway.into());
    }
}

fn resolve(section: &mut Section, servers: Vec<String>, only_these: bool, search: &[String]) {
    if only_these {
        put(section, "ignore-auto-dns", true.into());
    }
    if !servers.is_empty() {
        put(section, "dns-data", servers.into());
    }
    if !search.is_empty() {
        put(section, "dns-search", search.to_vec().into());
    }
}

/// Only values that hold a file descriptor cannot be owned, and none does here.
fn put(section: &mut Section, key: &str, value: Variant<'_>) {
    if let Ok(value) = OwnedVariant::try_from(value) {
        section.insert(key.to_owned(), value);
    }
}

fn method(section: Option<&Section>) -> String {
    section.and_then(|s| s.get("method")).and_then(text_of).unwrap_or_default()
}

fn gateway(section: Option<&Section>) -> Option<String> {
    section.and_then(|s| s.get("gateway")).and_then(text_of)
}

fn first_address(section: &Section) -> Option<(IpAddr, u8)> {
    addresses(section.get("address-data")?).into_iter().next()
}

/// Addresses with prefixes out of an `aa{sv}`.
#[must_use]
pub fn addresses(value: &OwnedVariant) -> Vec<(IpAddr, u8)> {
    dicts(value)
        .into_iter()
        .filter_map(|one| {
            let address = one.get("address").and_then(|v| if let Variant::Str(s) = v { s.parse().ok() } else { None })?;
            let prefix = one.get("prefix").and_then(|v| if let Variant::U32(n) = v { u8::try_from(*n).ok() } else { None })?;
            Some((address, prefix))
        })
        .collect()
}

/// The dictionaries of an `aa{sv}`.
#[must_use]
pub fn dicts(value: &OwnedVariant) -> Vec<HashMap<String, Variant<'_>>> {
    let Variant::Array(list) = &**value else { return Vec::new() };
    list.iter()
        .filter_map(|item| {
            let Variant::Dict(dict) = item else { return None };
            Some(
                dict.iter()
                    .filter_map(|(key, value)| {
                        let Variant::Str(key) = key else { return None };
                        let inner = match value {
                            Variant::Variant(inner) => (**inner).try_clone().ok()?,
                            other => other.try_clone().ok()?,
                        };
                        Some((key.to_string(), inner))
                    })
                    .collect(),
            )
        })
        .collect()
}

/// A text.
#[must_use]
pub fn text_of(value: &OwnedVariant) -> Option<String> {
    if let Variant::Str(text) = &**value { Some(text.to_string()).filter(|t| !t.is_empty()) } else { None }
}

/// A list of texts.
#[must_use]
pub fn texts_of(value: &OwnedVariant) -> Vec<String> {
    let Variant::Array(list) = &**value else { return Vec::new() };
    list.iter().filter_map(|item| if let Variant::Str(text) = item { Some(text.to_string()) } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed_config() -> InterfaceConfig {
        InterfaceConfig {
            ipv4: Ipv4Config::Static { address: "10.0.0.50".parse().unwrap(), prefix: 24, gateway: Some("10.0.0.1".parse().unwrap()) },
            ipv6: Ipv6Config::Static { address: "fd00::50".parse().unwrap(), prefix: 64, gateway: None },
            dns: vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
            search: vec!["example.com".into()],
        }
    }

    #[test]
    fn what_is_written_is_read_back_the_same() {
        let off = InterfaceConfig { ipv4: Ipv4Config::Off, ..fixed_config() };
        for mut wanted in [InterfaceConfig::default(), fixed_config(), off] {
            if wanted.ipv4 == Ipv4Config::Off {
                wanted.dns.retain(IpAddr::is_ipv6);
            }
            assert_eq!(read(&build(None, "eth0", "u-1", &wanted)), Some(wanted));
        }
    }

    #[test]
    fn settings_this_document_does_not_know_survive_a_change() {
        let mut base = build(None, "eth0", "u-1", &fixed_config());
        base.entry("802-3-ethernet".into()).or_default().insert("mtu".into(), OwnedVariant::from(9000u32));
        base.entry("ipv4".into()).or_default().insert("route-metric".into(), OwnedVariant::from(7i64));
        let next = build(Some(&base), "eth0", "u-2", &InterfaceConfig::default());
        assert_eq!(*next["802-3-ethernet"]["mtu"], Variant::U32(9000));
        assert_eq!(*next["ipv4"]["route-metric"], Variant::I64(7));
        for gone in ["address-data", "gateway", "dns-data", "dns-search", "ignore-auto-dns", "may-fail"] {
            assert!(!next["ipv4"].contains_key(gone), "{gone} of the old address must not stay");
        }
    }

    #[test]
    fn the_newer_of_two_profiles_wins_at_a_start_after_a_power_cut() {
        let first = build(None, "eth0", "u-1", &InterfaceConfig::default());
        let second = build(Some(&first), "eth0", "u-2", &fixed_config());
        assert!(Identity::of(&second).priority > Identity::of(&first).priority);
        assert_eq!(Identity::of(&second).uuid, "u-2");
        assert!(Identity::of(&second).is_ours());
    }

    #[test]
    fn a_method_that_is_not_known_is_not_guessed() {
        let mut settings = build(None, "eth0", "u-1", &InterfaceConfig::default());
        settings.entry("ipv4".into()).or_default().insert("method".into(), OwnedVariant::try_from(Variant::from("shared")).unwrap());
        assert_eq!(read(&settings), None);
    }
}
