//! The cases of the list `updates`: over the air and without a network, good ones, broken ones, forged ones, and power cuts in between.
//!
//! Machines run the production image and are driven through their console, their serial line, their power and reset buttons; their disks are
//! files that are looked at from outside. Releases are made by the real `warden-release` and served by a server that can misbehave.

mod archive;
mod bad;
pub mod broken_tree;
mod calls;
mod chain;
mod cut;
mod drive;
mod firmware;
mod forge;
mod keys;
mod machine;
mod offline;
mod publisher;
mod refused;
mod refused_files;
mod reproducible;
mod resume;
mod screen;
mod server;
mod site;
mod works;

use super::{Case, Tier, case, privilege};

/// Ends what cases shared by themselves.
pub fn strike() {
    cut::strike();
    offline::strike();
    chain::strike();
}

/// All of them, grouped by what shares a machine: first what needs none, then the machine that lives through the most, then fresh ones.
pub const CASES: &[Case] = &[
    case("reproducible", Tier::Host, reproducible::run),
    case("mark-denied", Tier::Nspawn, privilege::run),
    case("ota-a-b-a", Tier::Vm, chain::a_b_a),
    case("models-return", Tier::Vm, chain::models_return),
    case("figures", Tier::Vm, chain::figures),
    case("ota-resume", Tier::Vm, resume::run),
    case("bad-crash", Tier::Vm, bad::crash),
    case("bad-console", Tier::Vm, bad::console),
    case("bad-model", Tier::Vm, bad::model),
    case("bad-kernel", Tier::Vm, bad::kernel),
    case("bad-migrates", Tier::Vm, bad::migrates),
    case("ref-hook", Tier::Vm, refused_files::hook),
    case("ref-plain", Tier::Vm, refused_files::plain),
    case("ref-wrong-key", Tier::Vm, refused::wrong_key),
    case("ref-threshold", Tier::Vm, refused::threshold),
    case("ref-rollback-meta", Tier::Vm, refused::rollback_meta),
    case("ref-rollback-os", Tier::Vm, refused::rollback_os),
    case("ref-freeze", Tier::Vm, refused::freeze),
    case("ref-mix", Tier::Vm, refused::mix),
    case("ref-flip", Tier::Vm, refused_files::flip),
    case("ref-cut-file", Tier::Host, refused_files::cut_file),
    case("ref-paths", Tier::Host, refused_files::paths),
    case("root-rotation", Tier::Vm, keys::rotation),
    case("revoked", Tier::Vm, keys::revoked),
    case("offline-browser", Tier::Vm, offline::browser),
    case("clock", Tier::Vm, offline::clock),
    case("offline-stick", Tier::Vm, offline::stick),
    case("cut-write", Tier::Vm, cut::write),
    case("verity-confirmed", Tier::Vm, cut::verity),
    case("cut-mark", Tier::Vm, cut::mark),
    case("no-good-slot", Tier::Vm, cut::no_good_slot),
    case("smbios", Tier::Vm, firmware::smbios),
    case("secure-boot", Tier::Vm, firmware::secure_boot),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_of_the_list_has_a_case() {
        let list = crate::list::parse("updates", include_str!("../../../../accept/updates.toml")).unwrap();
        let ids: Vec<&str> = list.cases.iter().map(|c| c.id.as_str()).collect();
        let plan = crate::plan::plan(&ids, CASES, &[], None).unwrap();
        assert!(plan.complete && plan.unwritten.is_empty(), "{plan:?}");
    }

    #[test]
    fn every_deliberate_break_of_the_agents_code_is_written_and_fits() {
        for id in ["ref-wrong-key", "ref-rollback-meta", "ota-resume"] {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(broken_tree::BREAKS).join(format!("{id}.patch"));
            assert!(path.is_file(), "{} is missing", path.display());
            // One that no longer fits would otherwise be found on the day of its turn.
            let tree = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
            let fits = std::process::Command::new("patch")
                .args(["--dry-run", "--force", "--silent", "--strip=1", "--input"])
                .arg(&path)
                .current_dir(tree)
                .output();
            assert!(fits.unwrap().status.success(), "{} does not fit the tree any more", path.display());
        }
    }
}
