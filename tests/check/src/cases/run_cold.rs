//! The README on a clean machine, word for word: clone, `make run`, the console, `make demo`, the first answer, Ctrl-C.
//!
//! Measured from the moment `make run` is typed. Nothing of this machine's caches is visible inside.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::cold_root::ColdRoot;
use crate::command::{self, Running};
use crate::http::Http;
use crate::log::CaseLog;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// Where the README says the console is.
const BASE: &str = "http://127.0.0.1:8080";
/// Where the tree is put inside.
const TREE: &str = "/root/lm-warden-appliance";

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let http = Http::new(BASE, Duration::from_secs(5));
    if http.get("/").is_ok() || std::net::TcpListener::bind("127.0.0.1:8080").is_err() {
        return Err("port 8080 is taken on this machine; the README's address cannot be tried. Stop what listens there.".to_owned());
    }
    let readme = std::fs::read_to_string(stage.places.root.join("README.md")).map_err(|e| format!("README.md: {e}"))?;
    for words in ["make run", "make demo", "http://127.0.0.1:8080/ui/"] {
        result.expect(readme.contains(words), format!("the README says \"{words}\""));
    }
    let root = ColdRoot::unpack(&stage.places, &task.log)?;
    put_tree(stage, &root.outside(TREE), result, &task.log)?;

    let typed = Instant::now();
    let mut run = Running::start(root.enter(TREE, &["make", "run"]), &task.log)?;
    run.wait_for_line("Console: http://127.0.0.1:8080/ui/", Duration::from_secs(1800))?;
    wait_answer(&http, &mut run)?;
    let console_s = typed.elapsed().as_secs_f64();
    result.figure("run_console_cold_s", console_s);
    run.wait_for_line("Claim code: ", Duration::from_secs(10))?;
    result.note(format!("the console answered {console_s:.0} s after make run was typed"));

    let demo = command::run(root.enter(TREE, &["make", "demo"]), Duration::from_secs(2400), &task.log)?;
    let answer = demo.output.iter().find(|l| l.starts_with("demo: answer: ")).cloned().unwrap_or_default();
    let answer_s = typed.elapsed().as_secs_f64();
    result.expect(demo.ok() && answer.len() > "demo: answer: ".len(), format!("make demo prints a chat answer ({answer}; last: {})", demo.tail(2)));
    if demo.ok() {
        result.figure("run_answer_cold_s", answer_s);
    }
    let showed = demo.output.iter().any(|l| l.contains("waiting") || l.contains("being built"));
    result.note(format!("the first answer came after {answer_s:.0} s; the wait for the engine was {}shown", if showed { "" } else { "not " }));

    // Ctrl-C goes to make and its children, not to the outer shell of the harness.
    run.signal_group(Signal::SIGINT);
    let ended = run.wait(Duration::from_secs(60))?;
    result.expect(ended.text().contains("run: stopped"), "Ctrl-C stops it, and it says so");
    result.expect(std::net::TcpListener::bind("127.0.0.1:8080").is_ok(), "port 8080 is free again");
    result.note(format!("console {console_s:.0} s, first answer {answer_s:.0} s"));
    Ok(())
}

fn wait_answer(http: &Http, run: &mut Running) -> Result<(), String> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let page = http.get("/ui/");
        if page.as_ref().is_ok_and(|r| r.status < 400) && http.get("/healthz").is_ok_and(|r| r.status == 200) {
            return Ok(());
        }
        if run.try_wait()?.is_some() || Instant::now() >= until {
            return Err(format!("the printed address does not answer: {page:?}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A clone of the committed tree; with `--worktree` the files as they lie here.
fn put_tree(stage: &Stage, target: &Path, result: &mut CaseResult, log: &CaseLog) -> Result<(), String> {
    if stage.worktree {
        std::fs::create_dir_all(target).map_err(|e| format!("{}: {e}", target.display()))?;
        let mut copy = Command::new("sh");
        copy.args(["-c", "git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from=- --ignore-failed-read | tar --extract --directory=\"$0\""])
            .arg(target)
            .current_dir(&stage.places.root);
        command::run_ok("copying the working tree", copy, Duration::from_secs(120), log)?;
        result.note("the tree is the working tree as it lies here, not a commit");
        return Ok(());
    }
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet", "--no-hardlinks"]).arg(&stage.places.root).arg(target);
    command::run_ok("cloning the tree", clone, Duration::from_secs(300), log)?;
    let mut head = Command::new("git");
    head.args(["-C"]).arg(target).args(["rev-parse", "HEAD"]);
    let commit = command::run_ok("asking for the commit", head, Duration::from_secs(20), log)?.text();
    result.note(format!("the tree is a clone of {commit}"));
    Ok(())
}
