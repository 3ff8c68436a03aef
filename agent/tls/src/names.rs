//! What the box is called and where it is: the names and addresses a certificate must be for. Pure.

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};

/// More addresses than this are not written into a certificate; a box with that many is told by name.
const MOST_ADDRESSES: usize = 64;
/// Longest list of names an admin may give.
pub(crate) const MOST_NAMES: usize = 32;

/// The names and addresses of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// DNS names in lower case.
    pub names: BTreeSet<String>,
    /// Addresses.
    pub addresses: BTreeSet<IpAddr>,
}

impl Wanted {
    /// Everything the box is called: its host name, the same under `.local` (multicast DNS), names given in the configuration and by
    /// the admin, `localhost`; every address, and those of loopback. Names that DNS does not allow are left out.
    #[must_use]
    pub fn new<'a>(host: &str, given: impl IntoIterator<Item = &'a str>, addresses: &[IpAddr]) -> Self {
        let mut names = own_names(host, given);
        names.insert("localhost".into());
        let mut all: BTreeSet<IpAddr> = addresses.iter().map(IpAddr::to_canonical).take(MOST_ADDRESSES).collect();
        all.insert(IpAddr::from([127, 0, 0, 1]));
        all.insert(std::net::Ipv6Addr::LOCALHOST.into());
        Self { names, addresses: all }
    }
}

/// The host name, its `.local` twin and the names given, those that are names.
pub(crate) fn own_names<'a>(host: &str, given: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let mut names: BTreeSet<String> = given.into_iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect();
    if host != "localhost" {
        let first = host.split('.').next().unwrap_or_default();
        names.insert(format!("{first}.local"));
        names.insert(host);
    }
    names.retain(|name| valid_name(name));
    names
}

/// Whether a text is a DNS name: labels of 1 to 63 letters, digits and inner dashes, 253 bytes in all, not an address.
#[must_use]
pub fn valid_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    name.len() <= 253 && name.split('.').all(label) && !last.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_known_by_its_name_with_and_without_local_and_on_loopback() {
        let wanted = Wanted::new("Warden", ["llm.corp.example", "not a name", "10.0.0.9"], &["10.0.0.7".parse().unwrap()]);
        assert_eq!(wanted.names.iter().map(String::as_str).collect::<Vec<_>>(), ["llm.corp.example", "localhost", "warden", "warden.local"]);
        let addresses: Vec<String> = wanted.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.7", "127.0.0.1", "::1"]);
    }

    #[test]
    fn a_host_name_with_a_domain_is_found_under_local_by_its_first_part() {
        let names = own_names("box.corp.example", []);
        assert!(names.contains("box.local") && names.contains("box.corp.example") && !names.contains("box.corp.example.local"));
    }

    #[test]
    fn what_is_no_name_never_gets_into_a_certificate() {
        for name in ["", ".", "a..b", "-a", "a-", "a_b", "ü.example", "*.example", "a b", "1.2.3.4", "box:80", &"a".repeat(64), &"a.".repeat(127)] {
            assert!(!valid_name(name), "{name:?}");
        }
        for name in ["a", "a-b.example", "3com.example", "xn--bcher-kva.example"] {
            assert!(valid_name(name), "{name:?}");
        }
    }
}
