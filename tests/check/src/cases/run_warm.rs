//! The second `make run`: how soon the console answers, and that Ctrl-C leaves nothing behind.

use std::time::Duration;

use crate::make_run::{MakeRun, left_behind, state_folder};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let folder = state_folder()?;
    let mut first = MakeRun::start(stage, folder.path(), &task.log)?;
    let took = first.wait_console(Duration::from_secs(1800))?;
    result.note(format!("the first start took {:.1} s", took.as_secs_f64()));
    // A second start only counts when everything behind the console is ready too.
    stage.engine_program(&task.log)?;
    end(first, folder.path(), result, "the first run")?;

    let mut second = MakeRun::start(stage, folder.path(), &task.log)?;
    let took = second.wait_console(Duration::from_secs(120))?;
    result.figure("run_warm_s", took.as_secs_f64());
    end(second, folder.path(), result, "the second run")?;
    result.note(format!("the second start answered after {:.2} s", took.as_secs_f64()));
    Ok(())
}

fn end(run: MakeRun, folder: &std::path::Path, result: &mut CaseResult, which: &str) -> Result<(), String> {
    let base = run.base();
    let ended = run.interrupt(Duration::from_secs(40))?;
    result.expect(ended.text().contains("run: stopped"), format!("{which} says that it stopped after Ctrl-C"));
    let left = left_behind(folder);
    result.expect(left.is_empty(), format!("{which} leaves no process behind (left: {left:?})"));
    let answers = crate::http::Http::new(&base, Duration::from_secs(2)).get("/healthz").is_ok();
    result.expect(!answers, format!("after {which} nobody answers on its port"));
    Ok(())
}
