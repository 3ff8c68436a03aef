//! Runs the chosen cases: one after the other, or in two lanes where a list allows it.
//!
//! In: the cases in the order of their table. Out: what was seen of each; a line is printed for each as it ends. Virtual machines keep to
//! one lane, one at a time; what needs none (this machine, containers) mostly waits for windows of time to pass, and does that beside
//! them. A case that panics has failed; the others still run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use warden_domain::clock;

use crate::cases::{self, Case, Tier};
use crate::evidence::CaseEvidence;
use crate::images::{Flavour, PackKind};
use crate::log::CaseLog;
use crate::report;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// What was seen of one case.
pub type Seen = (CaseEvidence, CaseResult);

/// Runs them all.
///
/// # Errors
/// A sentence when a log cannot be written.
pub fn run(stage: &mut Stage, check: &str, chosen: &[Case], sabotage: bool) -> Result<Vec<Seen>, String> {
    let (beside, machines): (Vec<Case>, Vec<Case>) = chosen.iter().partition(|case| cases::may_run_beside(check, case));
    if machines.is_empty() || beside.is_empty() {
        return lane(stage, check, chosen, sabotage);
    }
    if beside.iter().any(|case| case.tier == Tier::Nspawn) {
        // Both lanes need images; they are built once, before either begins.
        build_images(stage)?;
    }
    let mut second = stage.second();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| lane(&mut second, check, &beside, sabotage));
        let mut seen = lane(stage, check, &machines, sabotage);
        let more = other.join().unwrap_or_else(|_| Err("the second lane panicked; that is a defect of the harness".to_owned()))?;
        if let Ok(seen) = &mut seen {
            seen.extend(more);
        }
        seen
    })
}

/// What goes wrong here is told by each case that asks for an image.
fn build_images(stage: &mut Stage) -> Result<(), String> {
    let log = CaseLog::create(&stage.places.logs, "images")?;
    let (images, places) = stage.images();
    if let Err(cause) = images.disk(Flavour::Production, PackKind::Signed, places, &log) {
        log.line(format!("the images are not built: {cause}"));
    }
    Ok(())
}

fn lane(stage: &mut Stage, check: &str, cases: &[Case], sabotage: bool) -> Result<Vec<Seen>, String> {
    let mut seen = Vec::new();
    for case in cases {
        // A guest that idles would still take time from the figures of what comes next.
        if case.tier != Tier::Vm {
            stage.unplug();
        }
        let (record, result) = run_case(stage, check, case, sabotage)?;
        println!("{}", report::case_line(case.id, &result, record.seconds.unwrap_or_default()));
        seen.push((record, result));
    }
    Ok(seen)
}

fn run_case(stage: &mut Stage, check: &str, case: &Case, sabotage: bool) -> Result<(CaseEvidence, CaseResult), String> {
    let name = if sabotage { format!("{}.sabotage", case.id) } else { case.id.to_owned() };
    let log = CaseLog::create(&stage.places.logs, &name)?;
    let task = Task { id: case.id, sabotage, log: log.clone() };
    let (start, clock_start) = (clock::now(), Instant::now());
    let mut result = CaseResult::new(log.path());
    match catch_unwind(AssertUnwindSafe(|| (case.run)(stage, &task, &mut result))) {
        Ok(Ok(())) => {}
        Ok(Err(cause)) => result.fail(cause),
        Err(_) => result.fail("the case itself panicked; that is a defect of the harness"),
    }
    for sentence in &result.sentences {
        log.line(format!("== {sentence}"));
    }
    let record = CaseEvidence {
        id: case.id.to_owned(),
        command: crate::run::alone(check, case.id),
        exit: Some(i32::from(!result.passed)),
        start: Some(start.to_string()),
        end: Some(clock::now().to_string()),
        seconds: Some(clock_start.elapsed().as_secs_f64()),
        figures: result.figures.clone(),
        sentences: result.sentences.clone(),
        machines: stage.take_machines(),
        log: Some(result.log.clone()),
    };
    Ok((record, result))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &mut Stage, _: &Task, _: &mut CaseResult) -> Result<(), String> {
        Ok(())
    }

    #[test]
    fn what_needs_a_machine_never_runs_beside_one() {
        let of = |tier| cases::case("a", tier, nothing);
        assert!(cases::may_run_beside("box", &of(Tier::Nspawn)) && cases::may_run_beside("box", &of(Tier::Host)));
        assert!(!cases::may_run_beside("updates", &of(Tier::Nspawn)) && cases::may_run_beside("updates", &of(Tier::Host)));
        for check in ["slice", "box", "updates"] {
            assert!(!cases::may_run_beside(check, &of(Tier::Vm)), "{check}");
        }
        assert!(!cases::may_run_beside("slice", &of(Tier::Host)));
    }
}
