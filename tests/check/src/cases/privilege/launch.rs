//! The agent's user owns the launch folder and may plant anything in it. Whatever a planted name leads to, no file that only root can read
//! may show up anywhere the agent can look: the engine's log, the unit's state, the journal.

use std::os::unix::fs::{PermissionsExt, symlink as link};
use std::path::Path;
use std::time::{Duration, Instant};

use super::bench::{self, Bench, Change, Refused, write};
use super::{MANAGER, NspawnCtx, start};
use crate::log::CaseLog;
use crate::result::CaseResult;

const SECRET: &str = "planted-secret-5e1f0c";
const LAUNCHER: &str = "/usr/lib/warden/warden-launch";

/// Runs the case.
pub fn symlink(sabotage: bool, ctx: &NspawnCtx, log: &CaseLog, result: &mut CaseResult) -> Result<(), String> {
    let mut changes = Vec::new();
    if sabotage {
        let program = bench::build_program(ctx, log)?;
        changes.push(Change::whole(LAUNCHER, std::fs::read(&program).map_err(|e| format!("{}: {e}", program.display()))?));
    }
    let bench = Bench::boot(ctx, changes, log)?;
    start::lay_pack(&bench, if sabotage { "DynamicUser=no\nUser=root\n" } else { "" })?;
    let secrets = [bench.data().join("models/root-only"), bench.state().join("root-only"), bench.data().join("pack/etc/shadow")];
    for secret in &secrets {
        write(secret, format!("root:{SECRET}:1::::::\n"))?;
        std::fs::set_permissions(secret, std::fs::Permissions::from_mode(0o600)).map_err(|e| e.to_string())?;
    }
    bench.run("root", &["/usr/bin/systemctl", "daemon-reload"])?;

    let targets = [
        ("in-models", "/data/models/root-only"),
        ("on-state", "/state/root-only"),
        ("shadow", "/etc/shadow"),
        ("up", "../../data/models/root-only"),
        ("log", "/data/models/root-only"),
    ];
    for (replica, target) in targets {
        plant(&bench, replica, target)?;
        let unit = format!("warden-engine@{replica}.service");
        let answer = bench.call("warden", &MANAGER, &["StartUnit", "ss", &unit, "replace"])?;
        result.expect(answer.refused() == Refused::No, format!("warden starts the replica whose spec is a link to {target}: {}", answer.told()));
        let shown = ended(&bench, &unit)?;
        result.expect(shown.contains("ExecMainStatus=78"), format!("the launcher refuses it with its own exit code ({})", shown.replace('\n', " ")));
        let folder = bench.seen(&format!("/run/warden-engine/{replica}"));
        let said = std::fs::read_to_string(folder.join("engine.log")).unwrap_or_default();
        let journal = bench.run("root", &["/usr/bin/journalctl", "--no-pager", "-u", &unit])?.stdout;
        let status = bench.run("root", &["/usr/bin/systemctl", "show", &unit])?.stdout;
        log.line(format!("engine.log of {replica}: {said}"));
        result.expect(!said.is_empty(), format!("the log says why: {}", said.trim().replace(SECRET, "(the secret)")));
        result.expect(
            ![said, journal, status].iter().any(|text| text.contains(SECRET)),
            format!("nothing of {target} shows in log, journal or unit state"),
        );
    }
    for secret in &secrets {
        let text = std::fs::read_to_string(secret).unwrap_or_default();
        result
            .expect(text == format!("root:{SECRET}:1::::::\n"), format!("{} is as it was", secret.file_name().unwrap_or_default().to_string_lossy()));
    }
    expect_owned_by_root(&bench, result)
}

/// What an agent gone bad would leave: the spec is a link, and for one replica the log is a link as well.
fn plant(bench: &Bench, replica: &str, target: &str) -> Result<(), String> {
    let owned = |path: &Path| std::os::unix::fs::lchown(path, Some(700), Some(700)).map_err(|e| format!("{}: {e}", path.display()));
    let spec = bench.seen(&format!("/run/warden/launch/{replica}.json"));
    link(target, &spec).map_err(|e| format!("{}: {e}", spec.display()))?;
    owned(&spec)?;
    let activated = bench.call("warden", &start::HELPER, &["ActivatePack", "ssast", replica, start::DIGEST, "0", "0"])?;
    if activated.refused() != Refused::No {
        return Err(format!("the helper does not activate the pack: {}", activated.told()));
    }
    if replica == "log" {
        let log = bench.seen(&format!("/run/warden-engine/{replica}/engine.log"));
        link(target, &log).map_err(|e| format!("{}: {e}", log.display()))?;
        owned(&log)?;
    }
    Ok(())
}

/// Waits until the unit is over and returns what the system manager shows of it.
fn ended(bench: &Bench, unit: &str) -> Result<String, String> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let shown = bench.run("root", &["/usr/bin/systemctl", "show", unit, "-p", "ActiveState", "-p", "Result", "-p", "ExecMainStatus"])?.stdout;
        if shown.contains("ActiveState=failed") || Instant::now() > until {
            return Ok(shown);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The names the system manager itself follows are not the agent's to change.
fn expect_owned_by_root(bench: &Bench, result: &mut CaseResult) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    for (path, why) in [
        ("/run/warden", "holds the launch folder, which is shown to engines as a whole"),
        ("/run/warden/root", "holds the names of packs"),
        ("/run/warden-engine", "holds the folders that are shown to engines for writing"),
        ("/run/systemd/system", "holds settings of units"),
    ] {
        let meta = std::fs::metadata(bench.seen(path)).map_err(|e| format!("{path}: {e}"))?;
        result.expect(meta.uid() == 0 && meta.mode() & 0o022 == 0, format!("{path} {why} and only root can change it"));
    }
    Ok(())
}
