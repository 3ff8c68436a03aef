//! `image/recipe.toml` as values. Unknown keys are refused, so that a typing error cannot silently drop a package.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::cli::Profile;
use crate::fault::{Done, Fault};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    pub(crate) suite: String,
    pub(crate) components: Vec<String>,
    pub(crate) epoch: u64,
    pub(crate) builder: Packages,
    pub(crate) root: Root,
    kernel: BTreeMap<String, Kernel>,
    slot: BTreeMap<String, Slot>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Packages {
    pub(crate) packages: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Root {
    pub(crate) packages: Vec<String>,
    pub(crate) prune: Vec<String>,
    pub(crate) remove: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kernel {
    pub(crate) package: String,
    pub(crate) drop: Vec<String>,
    pub(crate) initrd: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slot {
    pub(crate) bytes: u64,
}

impl Recipe {
    pub(crate) fn parse(text: &str) -> Done<Self> {
        toml::from_str(text).map_err(|e| Fault::refused("image/recipe.toml", e.to_string(), "correct the file"))
    }

    pub(crate) fn kernel(&self, profile: Profile) -> Done<&Kernel> {
        self.kernel.get(profile.name()).ok_or_else(|| missing("kernel", profile))
    }

    pub(crate) fn slot_bytes(&self, profile: Profile) -> Done<u64> {
        Ok(self.slot.get(profile.name()).ok_or_else(|| missing("slot", profile))?.bytes)
    }
}

fn missing(section: &str, profile: Profile) -> Fault {
    Fault::refused("image/recipe.toml", format!("there is no section [{section}.{}]", profile.name()), "add it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_in_the_tree_can_be_read_and_keeps_no_shell() {
        let recipe = Recipe::parse(include_str!("../../recipe.toml")).unwrap();
        for shell in ["bash", "dash"] {
            assert!(recipe.root.prune.iter().any(|p| p == shell), "{shell} would stay in the image");
        }
        assert!(recipe.kernel(Profile::Vm).is_ok() && recipe.kernel(Profile::Hardware).is_ok());
    }

    #[test]
    fn a_misspelt_key_is_refused_instead_of_ignored() {
        let text = include_str!("../../recipe.toml").replace("prune =", "prun =");
        assert!(Recipe::parse(&text).is_err());
    }
}
