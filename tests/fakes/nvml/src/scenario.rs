//! A scenario: what the simulated driver tells of its cards, as a file. An absent figure is one that the driver refuses.

use std::path::PathBuf;

use serde::Deserialize;

/// Its name beside the library.
pub(crate) const FILE: &str = "scenario.toml";

/// What the driver tells.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Version of the driver.
    pub driver: String,
    /// NVML's error code that the start answers, such as 18 for a driver of another version.
    pub refuse_start: Option<u32>,
    /// A call that stops answering.
    pub hang: Option<Hang>,
    /// The cards.
    #[serde(default)]
    pub card: Vec<Card>,
}

/// A call that never returns, after it answered some times.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hang {
    /// Name of the C function.
    pub call: String,
    /// For which card.
    pub card: u32,
    /// How often it answers first.
    pub after: u32,
}

/// A card. Figures are in the unit that their name ends with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "each name says it")]
pub struct Card {
    pub name: Option<String>,
    pub uuid: Option<String>,
    /// Number of the device file.
    pub minor: Option<u32>,
    pub pci: Option<String>,
    pub memory_total_mib: Option<u64>,
    pub memory_used_mib: Option<u64>,
    pub utilisation_percent: Option<u32>,
    pub temperature_c: Option<u32>,
    pub acoustic_c: Option<u32>,
    pub gpu_max_c: Option<u32>,
    pub slowdown_c: Option<u32>,
    pub margin_c: Option<i32>,
    pub power_mw: Option<u32>,
    pub power_cap_mw: Option<u32>,
    pub width_now: Option<u32>,
    pub width_max: Option<u32>,
    pub generation_now: Option<u32>,
    pub generation_max: Option<u32>,
    /// Refuses to tell who holds memory.
    #[serde(default)]
    pub holders_refused: bool,
    /// Fell off its bus after it was asked for so often.
    pub lost_after: Option<u32>,
    #[serde(default)]
    pub holder: Vec<Holder>,
}

/// A process that holds memory of a card.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "each name says it")]
pub struct Holder {
    pub pid: u32,
    pub name: Option<String>,
    pub memory_mib: Option<u64>,
}

impl Scenario {
    /// Understands a scenario's text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    /// Reads the file beside the library that holds this code.
    pub(crate) fn beside_this_library() -> Result<Self, String> {
        let path = this_library().ok_or("the library's own path is not in /proc/self/maps")?.with_file_name(FILE);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// The file whose mapping holds this very function.
fn this_library() -> Option<PathBuf> {
    let here = this_library as *const () as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let inside = usize::from_str_radix(from, 16).ok()? <= here && here < usize::from_str_radix(to, 16).ok()?;
        inside.then(|| rest.find('/').map(|at| PathBuf::from(&rest[at..])))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_that_comes_along_is_understood() {
        for name in ["four-alike", "narrow-link", "hang", "refusing", "odd"] {
            Scenario::parse(crate::named(name).unwrap()).unwrap();
        }
    }
}
