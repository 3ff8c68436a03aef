//! `unit-security`: how exposed each of our units is, counted by the image's own systemd on the unit files of the image's root.

use std::time::Duration;

use super::bench;
use crate::budgets::{BUDGETS, EXEMPT, exposure_of};
use crate::command;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let root = bench::root(stage, task)?;
    let folder = root.join("usr/lib/systemd/system");
    let (images, places) = stage.images();
    let builder = images.builder(places, &task.log)?;
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("warden-") && name.ends_with(".service"))
        .collect();
    names.sort();
    result.expect(!names.is_empty(), format!("the root has units of ours ({})", names.len()));
    for name in names {
        if let Some((_, why)) = EXEMPT.iter().find(|(exempt, _)| *exempt == name) {
            result.note(format!("{name} is not measured: {why}"));
            continue;
        }
        let Some((_, budget)) = BUDGETS.iter().find(|(unit, _)| *unit == name) else {
            result.expect(false, format!("{name} has a budget"));
            continue;
        };
        let mut analyze = builder.command("systemd-analyze", &[&folder]);
        analyze.args(["security", "--offline=true", "--no-pager", "--threshold=100"]).arg(folder.join(&name));
        let said = command::run(analyze, Duration::from_secs(60), &task.log)?;
        let measured = exposure_of(&said.output.join("\n")).ok_or_else(|| format!("{name}: no verdict in {}", said.tail(5)))?;
        result.figure(&format!("exposure {name}"), measured);
        result.expect(measured <= *budget, format!("{name} is exposed {measured} of {budget}"));
    }
    Ok(())
}
