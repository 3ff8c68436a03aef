//! A container with the image's root for one look at its privileges: programs inside, calls as a user, what a refusal means.
//!
//! In: the context and the files to be changed for this container. Out: answers, sorted by who refused. The agent is left out, so
//! that nothing but the call under test moves; everything ends with the bench.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use warden_vm::{Container, ContainerSpec, Ran};

use super::NspawnCtx;
use crate::command;
use crate::log::CaseLog;
use crate::result::CaseResult;

/// The stand-in program, inside.
pub const PROGRAM: &str = "/data/sandbox-program";
/// Where it leaves its mark, inside.
pub const MARK: &str = "/data/mark";

const UP: Duration = Duration::from_secs(60);

/// One file of the root that this container sees differently.
#[derive(Clone, Debug)]
pub struct Change {
    path: &'static str,
    content: Vec<u8>,
}

impl Change {
    /// Replaces a file.
    pub fn whole(path: &'static str, content: impl Into<Vec<u8>>) -> Self {
        Self { path, content: content.into() }
    }

    /// Replaces pieces of a file; each must be there, or the deliberate break would break nothing.
    pub fn edit(ctx: &NspawnCtx, path: &'static str, pieces: &[(&str, &str)]) -> Result<Self, String> {
        let file = ctx.root.join(path.trim_start_matches('/'));
        let mut text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        for (from, to) in pieces {
            if !text.contains(from) {
                return Err(format!("{path} has no {from:?}: the deliberate break must be fitted to it"));
            }
            text = text.replace(from, to);
        }
        Ok(Self::whole(path, text))
    }
}

/// Who held a call back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Nobody.
    No,
    /// The bus did not deliver it.
    ByBus,
    /// The system manager asked polkit, and polkit said no.
    ByPolkit,
    /// It failed for another cause.
    Otherwise,
}

/// What a call came to.
#[derive(Clone, Debug)]
pub struct Answer {
    status: Option<i32>,
    returned: String,
    error: String,
}

impl Answer {
    /// Sorts the answer.
    #[must_use]
    pub fn refused(&self) -> Refused {
        sort(self.status, &self.error)
    }

    /// The answer as part of a sentence.
    #[must_use]
    pub fn told(&self) -> String {
        match self.refused() {
            Refused::No => format!("done ({})", self.returned),
            Refused::ByBus => "refused by the bus".to_owned(),
            Refused::ByPolkit => "refused by polkit".to_owned(),
            Refused::Otherwise => format!("not done ({})", self.error),
        }
    }

    /// What the call returned.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.returned
    }
}

/// The last error that came over the bus: who sent it, its name, its message; or the tool's own last words.
fn error_message(said: &str) -> String {
    let heard = said.lines().rev().find(|line| line.starts_with("Got message type=error"));
    heard.or(said.lines().rev().find(|line| line.starts_with("Call failed"))).unwrap_or_default().to_owned()
}

fn sort(status: Option<i32>, error: &str) -> Refused {
    let says = |word: &str| error.contains(word);
    let from_bus = says("sender=org.freedesktop.DBus ");
    if status == Some(0) {
        Refused::No
    } else if from_bus && says("error-name=org.freedesktop.DBus.Error.AccessDenied") {
        Refused::ByBus
    } else if !from_bus
        && (says("error-name=org.freedesktop.DBus.Error.AccessDenied")
            || says("error-name=org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"))
    {
        Refused::ByPolkit
    } else {
        Refused::Otherwise
    }
}

/// A running container.
pub struct Bench {
    container: Container,
    folder: tempfile::TempDir,
    log: CaseLog,
}

impl Bench {
    /// Builds the stand-in program and boots.
    pub fn boot(ctx: &NspawnCtx, mut changes: Vec<Change>, log: &CaseLog) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("wardn").tempdir_in("/tmp").map_err(|e| format!("no temporary folder: {e}"))?;
        let agent = "/usr/lib/systemd/system/warden-agent.service";
        changes.push(Change::whole(agent, "[Unit]\nConditionPathExists=/nonexistent\n[Service]\nExecStart=/usr/lib/warden/warden-agent\n"));
        let mut binds = Vec::new();
        for (number, change) in changes.iter().enumerate() {
            let file = folder.path().join(format!("change-{number}"));
            write(&file, &change.content)?;
            open_to_all(&file)?;
            log.line(format!("this container sees another {} ({} bytes)", change.path, change.content.len()));
            binds.push((file, change.path.to_owned()));
        }
        for name in ["state", "data/models", "data/packs"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let program = build_program(ctx, log)?;
        let inside = folder.path().join(PROGRAM.trim_start_matches('/'));
        std::fs::copy(&program, &inside).map_err(|e| format!("{}: {e}", inside.display()))?;
        // The temporary folder is for root alone; the container must pass through it.
        open_to_all(folder.path())?;
        let spec = ContainerSpec { root: ctx.root.clone(), run_dir: folder.path().to_path_buf(), binds };
        let container = Container::boot(&spec, UP).map_err(|e| e.to_string())?;
        log.line(format!("a container with {} is up after {:.1} s", ctx.root.display(), container.age().as_secs_f64()));
        Ok(Self { container, folder, log: log.clone() })
    }

    /// Runs a program inside as a user.
    pub fn run(&self, user: &str, argv: &[&str]) -> Result<Ran, String> {
        let ran = self.container.run_as(user, argv).map_err(|e| e.to_string())?;
        self.log.line(format!("{user} $ {}\n{}{}(exit {:?})", argv.join(" "), ran.stdout, ran.stderr, ran.status));
        Ok(ran)
    }

    /// Calls a method over the system bus as a user. The tool is told to say all it hears, because it has one and the same sentence
    /// for a refusal by the bus and one by the system manager.
    pub fn call(&self, user: &str, target: &[&str; 3], method_and_arguments: &[&str]) -> Result<Answer, String> {
        self.call_within(30, user, target, method_and_arguments)
    }

    /// As [`Bench::call`], waiting so many seconds for an answer. A refusal by the bus comes at once; a service that cannot start never answers.
    pub fn call_within(&self, seconds: u32, user: &str, target: &[&str; 3], method_and_arguments: &[&str]) -> Result<Answer, String> {
        let passwd = std::fs::read_to_string(self.seen("/etc/passwd")).map_err(|e| format!("the accounts of the container: {e}"))?;
        let ids = passwd.lines().find_map(|line| line.strip_prefix(&format!("{user}:x:"))).ok_or_else(|| format!("the root has no user {user}"))?;
        let [uid, gid] = [0, 1].map(|place| ids.split(':').nth(place).unwrap_or_default());
        let mut nsenter = Command::new("nsenter");
        nsenter
            .args(["--target", &self.container.init_pid().to_string(), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"])
            .args(["--setuid", uid, "--setgid", gid, "--", "/usr/bin/busctl", &format!("--timeout={seconds}"), "--", "call"])
            .args(target)
            .args(method_and_arguments)
            .env_clear()
            .envs([("PATH", "/usr/sbin:/usr/bin"), ("LC_ALL", "C.UTF-8"), ("SYSTEMD_LOG_LEVEL", "debug"), ("SYSTEMD_LOG_TARGET", "console")])
            .stdin(std::process::Stdio::null());
        let output = nsenter.output().map_err(|e| format!("nsenter cannot be started: {e}"))?;
        let answer = Answer {
            status: output.status.code(),
            returned: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            error: error_message(&String::from_utf8_lossy(&output.stderr)),
        };
        self.log.line(format!("{user} $ busctl call {} {}\n{}", target.join(" "), method_and_arguments.join(" "), answer.told()));
        Ok(answer)
    }

    /// A path of the container as the host sees it.
    #[must_use]
    pub fn seen(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.container.init_pid()))
    }

    /// The data folder of the container on the host.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The state folder of the container on the host.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// Expects that no planted program ran.
    pub fn no_mark(&self, result: &mut CaseResult) {
        std::thread::sleep(Duration::from_millis(300));
        let mark = self.data().join("mark");
        let found = std::fs::read_to_string(&mark).unwrap_or_default();
        result.expect(
            !mark.exists(),
            if found.is_empty() { "the planted program did not run".to_owned() } else { format!("the planted program ran as {found}") },
        );
    }
}

/// The program is compiled once per run; it has no dependency, so that takes seconds.
pub fn build_program(ctx: &NspawnCtx, log: &CaseLog) -> Result<PathBuf, String> {
    let program = std::env::temp_dir().join(format!("wardn-sandbox-program-{}", std::process::id()));
    if !program.is_file() {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition=2024", "-Copt-level=1", "-Ctarget-feature=+crt-static", "-o"]).arg(&program).arg(&ctx.program);
        command::run_ok("building the stand-in program", rustc, Duration::from_secs(120), log)?;
    }
    Ok(program)
}

/// Removes the compiled stand-in program of this run.
pub fn strike() {
    let _gone_already = std::fs::remove_file(std::env::temp_dir().join(format!("wardn-sandbox-program-{}", std::process::id())));
}

/// Writes a file of the bench.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), String> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    std::fs::write(path, content).map_err(|e| format!("{}: {e}", path.display()))
}

fn open_to_all(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_failed_for_another_cause_is_not_taken_for_a_refusal() {
        let got = |sender: &str, name: &str| {
            error_message(&format!(
                "Sent message\nGot message type=error sender={sender} destination=:1.8 error-name={name} error-message=x\nCall failed: Access denied\n"
            ))
        };
        assert_eq!(sort(Some(0), ""), Refused::No);
        assert_eq!(sort(Some(1), &got("org.freedesktop.DBus", "org.freedesktop.DBus.Error.AccessDenied")), Refused::ByBus);
        assert_eq!(sort(Some(1), &got(":1.1", "org.freedesktop.DBus.Error.AccessDenied")), Refused::ByPolkit);
        assert_eq!(sort(Some(1), &got(":1.1", "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired")), Refused::ByPolkit);
        assert_eq!(sort(Some(1), &got("org.freedesktop.DBus", "org.freedesktop.DBus.Error.TimedOut")), Refused::Otherwise);
        assert_eq!(sort(Some(1), &got(":1.1", "org.freedesktop.systemd1.UnitExists")), Refused::Otherwise);
        assert_eq!(sort(None, ""), Refused::Otherwise);
    }
}
