//! One run of a check: reads the lists, has the cases run, writes the evidence.
//!
//! In: the wishes of the command line. Out: the process's exit code. A case that panics has failed; the others still run.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use warden_domain::clock;

use crate::cases::{self, Case, Tier};
use crate::evidence::{self, CaseEvidence, Evidence, ThresholdEvidence};
use crate::lanes;
use crate::list::{self, AcceptList, Standing};
use crate::places::Places;
use crate::plan;
use crate::report;
use crate::result::CaseResult;
use crate::stage::Stage;

/// A figure that only the one who started everything can take.
const CI_MINUTES: &str = "ci_minutes";
/// How long a complete run took.
const MINUTES: &str = "minutes";

/// What the command line asks for.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Only these ids.
    pub only: Vec<String>,
    /// Only this tier.
    pub tier: Option<Tier>,
    /// The id whose deliberate break is tried; `rotate` = the one whose turn it is today.
    pub sabotage: Option<String>,
    /// Turn the exit code of a deliberate break around.
    pub expect_fail: bool,
    /// Use the working tree where a clean checkout is asked for.
    pub worktree: bool,
    /// Put the programs of an earlier image build into the images.
    pub as_they_are: bool,
    /// When .ci/run began, in seconds since the epoch.
    pub ci_started: Option<i64>,
}

/// Runs a check.
///
/// # Errors
/// A sentence about what kept it from starting.
pub fn run(check: &str, wishes: &Wishes) -> Result<ExitCode, String> {
    let here = std::env::current_dir().map_err(|e| format!("the working directory cannot be read: {e}"))?;
    let places = Places::find(&here)?;
    let list = read_list(&places, check)?;
    let mut complaints = compare_with_floor(&places, check, &list)?;
    let sabotage = match wishes.sabotage.as_deref() {
        None => None,
        Some("rotate") => {
            let today = clock::now().as_second().div_euclid(86_400);
            let table = cases::table(check).unwrap_or_default();
            let fits = |id: &str| wishes.tier.is_none_or(|tier| table.iter().any(|case| case.id == id && case.tier == tier));
            let turns: Vec<&str> = breakable(&list).into_iter().filter(|id| fits(id)).collect();
            Some(plan::turn(&turns, today).ok_or("no id of the list has a deliberate break there")?.to_owned())
        }
        Some(id) if breakable(&list).contains(&id) => Some(id.to_owned()),
        Some(id) => return Err(format!("{id} has no deliberate break; these have one: {}", breakable(&list).join(", "))),
    };
    let only = sabotage.clone().map_or_else(|| wishes.only.clone(), |id| vec![id]);
    let listed: Vec<&str> = list.cases.iter().map(|c| c.id.as_str()).collect();
    let table = cases::table(check).ok_or_else(|| format!("no cases are written for the list {check}"))?;
    let plan = plan::plan(&listed, &table, &only, if sabotage.is_some() { None } else { wishes.tier })?;

    // Short cuts of the inner loop show something else than what is committed.
    let complete = plan.complete && !wishes.worktree && !wishes.as_they_are;
    let (start, begun) = (clock::now(), Instant::now());
    let mut stage = Stage::new(places.clone(), wishes.worktree, wishes.as_they_are);
    let mut done: BTreeMap<&str, (CaseEvidence, CaseResult)> = BTreeMap::new();
    if wishes.only.is_empty() && wishes.tier.is_none() && sabotage.is_none() {
        complaints.extend(plan.unwritten.iter().map(|id| format!("{id}: no case is written for it yet")));
    }
    let chosen: Vec<Case> = table.iter().filter(|c| plan.ids.contains(&c.id)).copied().collect();
    for (record, result) in lanes::run(&mut stage, check, &chosen, sabotage.is_some())? {
        if let Some(case) = chosen.iter().find(|c| c.id == record.id) {
            done.insert(case.id, (record, result));
        }
    }
    stage.strike();
    cases::strike();

    let mut figures: BTreeMap<String, f64> = done.values().flat_map(|(_, r)| r.figures.clone()).collect();
    if complete {
        // Only the whole list has a duration worth a limit.
        figures.insert(MINUTES.to_owned(), begun.elapsed().as_secs_f64() / 60.0);
    }
    if let Some(began) = wishes.ci_started {
        #[allow(clippy::cast_precision_loss, reason = "minutes of one run")]
        figures.insert(CI_MINUTES.to_owned(), (clock::now().as_second() - began) as f64 / 60.0);
    }
    let standings: Vec<(String, f64, Standing)> =
        list.thresholds.iter().map(|(name, &limit)| (name.clone(), limit, list::standing(name, limit, &figures))).collect();
    complaints.extend(threshold_complaints(&standings, complete));
    complaints.extend(done.iter().filter(|(_, (_, r))| !r.passed).map(|(id, (_, r))| format!("{id}: {}", r.headline())));
    let passed = done.values().filter(|(_, r)| r.passed).count();
    let record = Evidence {
        check: check.to_owned(),
        complete,
        green: complete && sabotage.is_none() && complaints.is_empty(),
        commit: commit(&places),
        start: start.to_string(),
        end: clock::now().to_string(),
        thresholds: standings.iter().map(|(name, limit, s)| (name.clone(), threshold(*limit, *s))).collect(),
        cases: list.cases.iter().map(|c| done.get(c.id.as_str()).map_or_else(|| not_executed(check, &c.id), |(record, _)| record.clone())).collect(),
        complaints: complaints.clone(),
    };
    let written = evidence::write(&places.evidence, &evidence::file_name(check, complete, sabotage.as_deref()), &record)?;

    if let Some(id) = sabotage {
        let detected = done.get(id.as_str()).is_some_and(|(_, r)| r.detected_a_fault());
        println!("{}", report::sabotage_line(&id, detected, done.get(id.as_str()).map(|(_, r)| r)));
        // Without --expect-fail the break makes the command fail, as it would for anybody who broke the thing by accident.
        return Ok(exit(detected == wishes.expect_fail));
    }
    println!("{}", report::figures_line(&standings));
    for complaint in &complaints {
        println!("missing: {complaint}");
    }
    println!("evidence: {}", written.display());
    println!("{passed} passed, {} failed", done.len() - passed);
    Ok(exit(complaints.is_empty() && passed == plan.ids.len()))
}

fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read_list(places: &Places, check: &str) -> Result<AcceptList, String> {
    let path = places.accept(check);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("no acceptance list {}: {e}", path.display()))?;
    list::parse(&path.display().to_string(), &text).map_err(|e| e.to_string())
}

fn compare_with_floor(places: &Places, check: &str, list: &AcceptList) -> Result<Vec<String>, String> {
    let Some(path) = places.accept_floor(check) else { return Ok(Vec::new()) };
    let text = std::fs::read_to_string(&path).map_err(|e| format!("the floor of the acceptance list {}: {e}", path.display()))?;
    let floor = list::parse(&path.display().to_string(), &text).map_err(|e| e.to_string())?;
    Ok(list::weaknesses(list, &floor))
}

fn breakable(list: &AcceptList) -> Vec<&str> {
    list.cases.iter().filter(|c| c.sabotage.is_some()).map(|c| c.id.as_str()).collect()
}

pub(crate) fn alone(check: &str, id: &str) -> String {
    format!("target/debug/warden-check {check} --only {id}")
}

fn not_executed(check: &str, id: &str) -> CaseEvidence {
    CaseEvidence {
        id: id.to_owned(),
        command: alone(check, id),
        exit: None,
        start: None,
        end: None,
        seconds: None,
        figures: BTreeMap::new(),
        sentences: Vec::new(),
        machines: Vec::new(),
        log: None,
    }
}

const fn threshold(limit: f64, standing: Standing) -> ThresholdEvidence {
    let measured = match standing {
        Standing::Met(value) | Standing::Missed(value) => Some(value),
        Standing::NotMeasured => None,
    };
    ThresholdEvidence { limit, measured }
}

/// In a complete run every threshold must be measured, but for the one that only .ci/run can measure.
fn threshold_complaints(standings: &[(String, f64, Standing)], complete: bool) -> Vec<String> {
    standings
        .iter()
        .filter_map(|(name, limit, standing)| match standing {
            Standing::Met(_) => None,
            Standing::Missed(value) => Some(format!("threshold {name}: {value:.1} is above {limit}")),
            Standing::NotMeasured if complete && name != CI_MINUTES => Some(format!("threshold {name} was not measured")),
            Standing::NotMeasured => None,
        })
        .collect()
}

/// The commit the tree stands at, marked when files differ from it.
fn commit(places: &Places) -> Option<String> {
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git").args(args).current_dir(&places.root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain"])?;
    Some(if changed.is_empty() { head } else { format!("{head}-dirty") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_run_with_an_unmeasured_threshold_is_not_green() {
        let standings = vec![("run_warm_s".to_owned(), 5.0, Standing::NotMeasured), (CI_MINUTES.to_owned(), 60.0, Standing::NotMeasured)];
        assert_eq!(threshold_complaints(&standings, true), vec!["threshold run_warm_s was not measured".to_owned()]);
        assert!(threshold_complaints(&standings, false).is_empty());
    }

    #[test]
    fn a_missed_threshold_counts_in_a_partial_run_too() {
        let standings = vec![("run_warm_s".to_owned(), 5.0, Standing::Missed(6.2))];
        assert_eq!(threshold_complaints(&standings, false).len(), 1);
    }
}
