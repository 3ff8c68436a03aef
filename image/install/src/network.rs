//! One wired port as the answer file wants it: checked, found on this machine, and written as the network service's own profile. Text and
//! the machine's ports come in, a profile or one sentence goes out; only [`ports`] reads.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use serde::Deserialize;
use warden_domain::address;

/// Where the kernel shows ports.
pub const PORTS: &str = "/sys/class/net";
/// Where the network service keeps its profiles, below the state partition's root.
pub const FOLDER: &str = "network/connections";
/// The port by default: an Ethernet one.
const ETHERNET: &str = "1";

/// `[network]` of the answer file as it is written there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    port: Option<String>,
    mac: Option<String>,
    address: Option<String>,
    gateway: Option<Ipv4Addr>,
    #[serde(default)]
    dns: Vec<IpAddr>,
    #[serde(default)]
    search: Vec<String>,
}

/// What one port shall do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Which port.
    pub port: Named,
    /// A fixed address; nothing = DHCP.
    pub fixed: Option<Fixed>,
    /// Name servers; empty = those that DHCP or the router names.
    pub dns: Vec<IpAddr>,
    /// Domains in which short names are looked up.
    pub search: Vec<String>,
}

/// How a port is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// By the system's name.
    Name(String),
    /// By its hardware address, in lower case.
    Mac(String),
}

/// A fixed IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// The address.
    pub address: Ipv4Addr,
    /// Length of the network part, in bits.
    pub prefix: u8,
    /// The way to other networks.
    pub gateway: Option<Ipv4Addr>,
}

/// A wired port of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The system's name.
    pub name: String,
    /// Its hardware address, in lower case.
    pub mac: String,
}

/// Checks what is written.
///
/// # Errors
/// A sentence with its way out.
pub fn check(text: Text) -> Result<Network, String> {
    let port = match (text.port, text.mac) {
        (Some(name), None) if is_port(&name) => Named::Name(name),
        (Some(_), None) => return Err("network.port is no name of a port; the console's page Network shows them, such as enp3s0".to_owned()),
        (None, Some(mac)) if is_mac(&mac) => Named::Mac(mac.to_ascii_lowercase()),
        (None, Some(_)) => return Err("network.mac is no hardware address; write it as 3c:ec:ef:12:34:56".to_owned()),
        _ => return Err("name the port by exactly one of network.port and network.mac".to_owned()),
    };
    let fixed = match (text.address, text.gateway) {
        (None, None) => None,
        (None, Some(_)) => return Err("network.gateway needs network.address; without an address the port asks a DHCP server for both".to_owned()),
        (Some(written), gateway) => {
            let parts = written.split_once('/').and_then(|(ip, prefix)| Some((ip.parse().ok()?, prefix.parse().ok()?)));
            let (address, prefix) = parts.ok_or("network.address is no IPv4 address with its prefix; write it as 192.0.2.10/24")?;
            address::check_ipv4(address, prefix, gateway).map_err(|problem| problem.full_text())?;
            Some(Fixed { address, prefix, gateway })
        }
    };
    if text.dns.len() > 3 || text.dns.iter().any(|ip| ip.is_unspecified() || ip.is_multicast() || ip.is_loopback()) {
        return Err("network.dns names at most three servers by the addresses they have in your network".to_owned());
    }
    if text.search.len() > 6 || !text.search.iter().all(|domain| is_domain(domain)) {
        return Err("network.search names at most six domains, such as example.com".to_owned());
    }
    Ok(Network { port, fixed, dns: text.dns, search: text.search })
}

fn is_port(name: &str) -> bool {
    (1..=15).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) && !name.starts_with(['.', '-'])
}

fn is_mac(mac: &str) -> bool {
    mac.len() == 17 && mac.split(':').all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_domain(domain: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    domain.len() <= 253 && domain.split('.').all(label)
}

impl Network {
    /// The system's name of the port that is meant.
    ///
    /// # Errors
    /// A sentence that names the ports there are.
    pub fn find<'a>(&self, ports: &'a [Port]) -> Result<&'a str, String> {
        let (wanted, found) = match &self.port {
            Named::Name(name) => (format!("is called {name}"), ports.iter().find(|port| port.name == *name)),
            Named::Mac(mac) => (format!("has the hardware address {mac}"), ports.iter().find(|port| port.mac == *mac)),
        };
        let here: Vec<String> = ports.iter().map(|port| format!("{} ({})", port.name, port.mac)).collect();
        let here = if here.is_empty() { "none".to_owned() } else { here.join(", ") };
        found.map(|port| port.name.as_str()).ok_or_else(|| format!("no wired port {wanted}; ports here: {here}. Correct [network] in answer.toml"))
    }

    /// The profile for the port with the system's name `port`, as the network service keeps it. It is one that the console would make, so
    /// that the page Network shows and changes it. A port named by hardware address keeps its profile under any name.
    #[must_use]
    pub fn profile(&self, port: &str, uuid: &str) -> String {
        let mut text = format!("[connection]\nid=warden-{port}\nuuid={uuid}\ntype=ethernet\nautoconnect=true\nautoconnect-priority=10\n");
        match &self.port {
            Named::Name(name) => text.push_str(&format!("interface-name={name}\n\n[ethernet]\n")),
            Named::Mac(mac) => text.push_str(&format!("\n[ethernet]\nmac-address={}\n", mac.to_ascii_uppercase())),
        }
        text.push_str("\n[ipv4]\n");
        match self.fixed {
            None => text.push_str("method=auto\n"),
            Some(Fixed { address, prefix, gateway }) => {
                text.push_str(&format!("method=manual\naddress1={address}/{prefix}\nmay-fail=false\n"));
                if let Some(gateway) = gateway {
                    text.push_str(&format!("gateway={gateway}\n"));
                }
            }
        }
        text.push_str("dad-timeout=1000\n");
        text.push_str(&self.names(true));
        text.push_str("\n[ipv6]\nmethod=auto\n");
        text.push_str(&self.names(false));
        text
    }

    fn names(&self, v4: bool) -> String {
        let mut text = String::new();
        let servers: String = self.dns.iter().filter(|ip| ip.is_ipv4() == v4).map(|ip| format!("{ip};")).collect();
        if !self.dns.is_empty() {
            text.push_str("ignore-auto-dns=true\n");
        }
        if !servers.is_empty() {
            text.push_str(&format!("dns={servers}\n"));
        }
        if !self.search.is_empty() {
            text.push_str(&format!("dns-search={};\n", self.search.join(";")));
        }
        text
    }
}

/// The wired ports of this machine in the order of their names, read below a folder as [`PORTS`].
#[must_use]
pub fn ports(folder: &Path) -> Vec<Port> {
    let word = |path: &Path| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let one = |at: std::path::PathBuf| {
        let wired = at.join("device").exists() && !at.join("phy80211").exists() && word(&at.join("type")) == ETHERNET;
        let name = at.file_name()?.to_str()?.to_owned();
        wired.then(|| Port { name, mac: word(&at.join("address")).to_ascii_lowercase() })
    };
    let mut found: Vec<Port> = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|item| one(item.path())).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Network, String> {
        check(toml::from_str(text).map_err(|e| e.to_string())?)
    }

    fn here() -> Vec<Port> {
        [("enp1s0", "52:54:00:00:00:01"), ("enp2s0", "52:54:00:00:00:02")].map(|(name, mac)| Port { name: name.into(), mac: mac.into() }).into()
    }

    #[test]
    fn a_fixed_address_becomes_a_profile_that_the_console_knows_as_its_own() {
        let network = parse(
            "port = 'enp2s0'\naddress = '192.0.2.10/24'\ngateway = '192.0.2.1'\ndns = ['192.0.2.2', '2001:db8::2']\nsearch = ['example.com', 'lab']",
        );
        let network = network.unwrap();
        assert_eq!(network.find(&here()), Ok("enp2s0"));
        assert_eq!(
            network.profile("enp2s0", "u-1"),
            "[connection]\nid=warden-enp2s0\nuuid=u-1\ntype=ethernet\nautoconnect=true\nautoconnect-priority=10\ninterface-name=enp2s0\n\n[ethernet]\n\n\
             [ipv4]\nmethod=manual\naddress1=192.0.2.10/24\nmay-fail=false\ngateway=192.0.2.1\ndad-timeout=1000\nignore-auto-dns=true\ndns=192.0.2.2;\n\
             dns-search=example.com;lab;\n\n[ipv6]\nmethod=auto\nignore-auto-dns=true\ndns=2001:db8::2;\ndns-search=example.com;lab;\n"
        );
    }

    #[test]
    fn a_port_is_found_by_its_hardware_address_in_either_case() {
        let network = parse("mac = '52:54:00:00:00:0A'").unwrap();
        let said = network.find(&here()).unwrap_err();
        assert!(said.contains("52:54:00:00:00:0a") && said.contains("enp1s0 (52:54:00:00:00:01)"), "{said}");
        let network = parse("mac = '52:54:00:00:00:01'").unwrap();
        assert_eq!(network.find(&here()), Ok("enp1s0"));
        let profile = network.profile("enp1s0", "u");
        assert!(profile.contains("mac-address=52:54:00:00:00:01") && profile.contains("method=auto") && !profile.contains("interface-name"));
    }

    #[test]
    fn what_could_not_work_is_refused_before_anything_is_written() {
        for bad in [
            "",
            "port = 'a'\nmac = '52:54:00:00:00:01'",
            "port = 'a b'",
            "port = '../x'",
            "mac = '52-54-00-00-00-01'",
            "port = 'a'\naddress = '192.0.2.10'",
            "port = 'a'\naddress = '192.0.2.0/24'",
            "port = 'a'\naddress = '192.0.2.10/24'\ngateway = '198.51.100.1'",
            "port = 'a'\ngateway = '192.0.2.1'",
            "port = 'a'\naddress = '2001:db8::1/64'",
            "port = 'a'\ndns = ['0.0.0.0']",
            "port = 'a'\ndns = ['dns.example.com']",
            "port = 'a'\nsearch = ['exa mple']",
            "port = 'a'\nsearch = ['x;method=shared']",
            "port = 'a'\nvlan = 7",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_wired_ports_of_the_machine_count() {
        let sys = tempfile::tempdir().unwrap();
        for (name, kind, device) in [("enp1s0", "1", true), ("lo", "772", false), ("br0", "1", false), ("wlp1", "1", true)] {
            let at = sys.path().join(name);
            fs::create_dir_all(if device { at.join("device") } else { at.clone() }).unwrap();
            fs::write(at.join("type"), kind).unwrap();
            fs::write(at.join("address"), "52:54:00:AA:00:01\n").unwrap();
        }
        fs::create_dir(sys.path().join("wlp1/phy80211")).unwrap();
        assert_eq!(ports(sys.path()), [Port { name: "enp1s0".into(), mac: "52:54:00:aa:00:01".into() }]);
    }
}
