//! Versions that can be compared: one to four numbers with dots. Used for the OS, the agent and the driver; engines and models carry
//! free text that nobody compares.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// `1.4.0`, `550.163.01`. Compared number by number; missing numbers count as zero.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    text: String,
    numbers: [u32; 4],
}

impl Version {
    /// Below every other; the floor of a box that has seen nothing.
    #[must_use]
    pub fn zero() -> Self {
        Self { text: "0".to_owned(), numbers: [0; 4] }
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a version of one to four numbers with dots, such as 1.4.0");
        let mut numbers = [0; 4];
        for (at, part) in text.split('.').enumerate() {
            let digits = !part.is_empty() && part.len() <= 9 && part.bytes().all(|b| b.is_ascii_digit());
            let slot = numbers.get_mut(at).filter(|_| digits).ok_or_else(wrong)?;
            *slot = part.parse().map_err(|_| wrong())?;
        }
        Ok(Self { text: text.to_owned(), numbers })
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.text
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.numbers == other.numbers
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn versions_compare_by_number_not_by_letter() {
        assert!(v("1.10.0") > v("1.9.9"));
        assert!(v("550.163.01") > v("550.90"));
        assert_eq!(v("1.2"), v("1.2.0"));
        assert!(v("0.0.1") > Version::zero());
    }

    #[test]
    fn what_cannot_be_compared_is_no_version() {
        for bad in ["", "1.", ".1", "1.2.3.4.5", "1.2-rc1", "v1", "1.-2", "+1", "99999999999", "1 .2"] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
    }
}
