//! Starting an engine so that it does not depend on the agent: its own session, no inherited files, a closed environment.
//!
//! In: program, arguments, environment, log. Out: the child. The only module of this crate with `unsafe` code, because the standard
//! library offers no other way to act between fork and exec.
#![allow(unsafe_code, reason = "pre_exec, see the safety comment at its only use")]

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io,
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use nix::{
    libc::{self, c_uint},
    unistd::setsid,
};

/// What to start.
pub(super) struct Start<'a> {
    pub(super) program: &'a Path,
    pub(super) arguments: &'a [String],
    pub(super) environment: &'a BTreeMap<String, String>,
    pub(super) log: &'a Path,
}

/// Starts it. The child leads a session and a process group of its own, so that neither a terminal nor the end of the agent reaches it.
pub(super) fn spawn(start: &Start<'_>) -> io::Result<tokio::process::Child> {
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(start.log)?;
    let mut command = Command::new(start.program);
    command
        .args(start.arguments)
        .env_clear()
        .envs(start.environment)
        .env("HOME", "/tmp")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    // SAFETY: between fork and exec only async-signal-safe calls may be made. The closure makes two system calls, setsid and
    // close_range, allocates nothing, takes no lock, and touches no memory of other threads. close_range only marks descriptors as
    // close-on-exec, so the pipe through which the standard library reports a failed exec stays open until exec.
    unsafe {
        command.pre_exec(|| {
            setsid().map_err(io::Error::from)?;
            let done = libc::close_range(3, c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int);
            if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        });
    }
    tokio::process::Command::from(command).kill_on_drop(false).spawn()
}
