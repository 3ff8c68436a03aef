//! Every unit of the appliance stays within its exposure budget, as `systemd-analyze security` counts it on the plain unit file.
//! A unit without a row here fails, so that a new program cannot come in unmeasured.
#![allow(clippy::panic, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../src/budgets.rs"]
mod budgets;

use budgets::{BUDGETS, EXEMPT, exposure_of};

fn units() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../image/overlay/usr/lib/systemd/system")
}

fn exposure(unit: &str) -> f64 {
    let run = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", "--threshold=100"])
        .arg(units().join(unit))
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("systemd-analyze (package systemd) is needed for this test");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    exposure_of(&said).unwrap_or_else(|| panic!("{unit}: no verdict in {said}{}", String::from_utf8_lossy(&run.stderr)))
}

#[test]
fn no_program_of_the_appliance_is_more_exposed_than_its_budget() {
    for (unit, budget) in BUDGETS {
        let measured = exposure(unit);
        assert!(measured <= *budget, "{unit} is exposed {measured}, its budget is {budget}");
    }
}

#[test]
fn a_new_unit_cannot_come_in_without_a_budget() {
    let known: BTreeSet<&str> = BUDGETS.iter().map(|(unit, _)| *unit).chain(EXEMPT.iter().map(|(unit, _)| *unit)).collect();
    for item in std::fs::read_dir(units()).unwrap() {
        let name = item.unwrap().file_name().into_string().unwrap();
        if name.starts_with("warden-") && name.ends_with(".service") {
            assert!(known.contains(name.as_str()), "{name} has no row in the budgets");
        }
    }
}
