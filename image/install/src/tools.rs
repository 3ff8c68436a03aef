//! The outside programs an installation calls: partitioning, file system checks, the wait for device nodes. The only place that starts
//! a process. Each is named by its whole path and gets a fixed environment.

use std::process::{Command, Output, Stdio};

use warden_domain::{Problem, ProblemKind};

/// Partitions and formats a disk by the partition files. What was on it is gone afterwards; the new table is written last.
///
/// # Errors
/// The program's last words.
pub fn partition(device: &str, definitions: &str) -> Result<(), Problem> {
    let definitions = format!("--definitions={definitions}");
    run("/usr/bin/systemd-repart", &["--dry-run=no", "--empty=force", "--seed=random", "--no-pager", "--no-legend", &definitions, device], &[0])
}

/// Waits until device nodes stand as the kernel sees the disks.
pub fn settle() {
    // Whoever looks afterwards finds out what is missing.
    let _ = output("/usr/bin/udevadm", &["settle", "--timeout=30"]);
}

/// Checks a FAT file system without changing it.
///
/// # Errors
/// When it is damaged.
pub fn check_fat(device: &str) -> Result<(), Problem> {
    run("/usr/sbin/fsck.fat", &["-n", device], &[0])
}

/// Repairs a FAT file system that was not unmounted; a damage that stays shows itself at the mount.
pub fn repair_fat(device: &str) {
    let _ = output("/usr/sbin/fsck.fat", &["-a", "-w", device]);
}

/// Checks an ext4 file system without changing it.
///
/// # Errors
/// When it is damaged.
pub fn check_ext4(device: &str) -> Result<(), Problem> {
    run("/usr/sbin/e2fsck", &["-f", "-n", device], &[0])
}

fn output(program: &str, arguments: &[&str]) -> std::io::Result<Output> {
    Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin")
        .env("LC_ALL", "C.UTF-8")
        .env("TMPDIR", "/run")
        .env("SYSTEMD_LOG_LEVEL", "notice")
        .stdin(Stdio::null())
        .output()
}

fn run(program: &str, arguments: &[&str], good: &[i32]) -> Result<(), Problem> {
    let name = program.rsplit('/').next().unwrap_or(program);
    let failed = |cause: String| {
        Problem::new(ProblemKind::SystemService, format!("{name} failed: {cause}."))
            .hint("Check the disk's cable and health, and install again; if it stays, use another disk.")
    };
    let output = output(program, arguments).map_err(|error| failed(error.to_string()))?;
    if output.status.code().is_some_and(|code| good.contains(&code)) {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let last: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Err(failed(format!("{} ({})", last[last.len().saturating_sub(3)..].join(" / "), output.status)))
}
