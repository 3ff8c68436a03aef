//! Static launcher of one engine. Started by the system manager as `/.warden/launch <replica>`, inside the engine's sandbox and as
//! the engine's own user, it reads the launch spec, checks it and becomes the engine. It holds no secret and no privilege: whatever a
//! planted file points at, this process can read no more than the engine could.

mod log;
mod spec;
mod specfile;

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Exit code for a launch spec that is not accepted (EX_CONFIG).
const BAD_SPEC: u8 = 78;
/// Exit code for a log or program that cannot be opened (EX_IOERR).
const NO_START: u8 = 74;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(replica), None) = (arguments.next(), arguments.next()) else {
        return refuse(BAD_SPEC, "launch: one argument is needed, the replica's id");
    };
    if let Err(problem) = spec::check_replica(&replica) {
        return refuse(BAD_SPEC, &problem.to_string());
    }
    let folder = Path::new("/run/warden-engine").join(&replica);
    if let Err(problem) = log::take_over(&folder) {
        return refuse(NO_START, &problem.to_string());
    }
    let read = specfile::read(Path::new("/.warden/specs"), &replica);
    let launch = match read.and_then(|bytes| spec::parse(&bytes, &replica)) {
        Ok(launch) => launch,
        Err(problem) => return refuse(BAD_SPEC, &problem.to_string()),
    };
    let error = Command::new(&launch.program).args(&launch.args).env_clear().envs(&launch.env).exec();
    refuse(NO_START, &format!("launch: {} of the engine pack does not start: {error}", launch.program))
}

fn refuse(code: u8, sentence: &str) -> ExitCode {
    // Standard error is the engine's log once that is taken over.
    let _ = writeln!(std::io::stderr(), "{sentence}");
    log::tell_journal(sentence);
    ExitCode::from(code)
}
