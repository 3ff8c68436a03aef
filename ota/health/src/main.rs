//! `warden-health`: judges the slot this machine was started from, once per start.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use sd_notify::NotifyState;
use warden_health::came::{Came, came};
use warden_health::checks::Expected;
use warden_health::hands::BusHands;
use warden_health::readers::Appliance;
use warden_health::run::{self, Ended, Trial};
use warden_health::times::{self, Times};
use warden_update_record::{boot_id, counted, image_version, slot_of};

/// Belongs to this boot; keeps the moment of the gate's first start for its later ones.
const STARTED: &str = "/run/warden-health/started";

/// Longer than any start is watched.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // The journal adds time and unit by itself.
    tracing_subscriber::fmt().without_time().with_ansi(false).with_target(false).with_writer(std::io::stderr).init();
    tokio::spawn(live());
    match judge().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            tracing::error!("{cause}");
            ExitCode::FAILURE
        }
    }
}

/// Tells the system manager that this process is not stuck: a gate that hangs is started again and goes on under the same deadline.
async fn live() {
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    loop {
        let _ = sd_notify::notify(&[NotifyState::Watchdog]);
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

async fn judge() -> Result<(), String> {
    let read = |path: &str| std::fs::read_to_string(path).map_err(|cause| format!("{path}: {cause}"));
    let times = Times::parse(&read(times::FILE)?)?;
    let bus = zbus::Connection::system().await.map_err(|cause| format!("the system bus does not answer: {cause}"))?;
    let eyes = Appliance { bus: bus.clone(), socket: PathBuf::from("/run/warden-agent/console.sock"), model: times.model };
    let hands = BusHands(bus);
    let slot = slot_of(&read("/proc/cmdline")?);
    if !counted() {
        run::settle(&eyes, &hands, Duration::from_secs(2)).await?;
        tracing::info!("the agent answers; this start counts as healthy");
        return Ok(());
    }
    let slot = slot.ok_or("the kernel command line names no slot; this system was not started from one")?;
    let version = image_version(&read("/usr/lib/os-release")?).ok_or("/usr/lib/os-release names no IMAGE_VERSION")?;
    let boot_id = boot_id().map_err(|cause| format!("this boot has no id: {cause}"))?;
    let Came { transaction, before, update } = came(Path::new(warden_update_record::UPDATE_DIR), slot, &boot_id);
    let times = if update { times } else { Times { deadline: NEVER, ..times } };
    let trial = Trial {
        transaction,
        expected: Expected { version, before },
        slot,
        boot_id,
        times,
        spent: spent()?,
        folder: PathBuf::from(warden_update_record::HEALTH_DIR),
    };
    tracing::info!(transaction = ?trial.transaction, "slot {slot} is on trial, {} s of {} are spent", trial.spent.as_secs(), times.deadline.as_secs());
    match run::watch(&trial, &eyes, &hands).await? {
        Ended::Good => tracing::info!("slot {slot} is good"),
        Ended::Bad(reason) => tracing::error!(code = reason.code, "the machine restarts into the other slot"),
        Ended::NowhereToGo(reason) => tracing::error!(code = reason.code, "slot {slot} is not good and stays"),
    }
    Ok(())
}

/// Time since the gate's first start in this boot.
fn spent() -> Result<Duration, String> {
    let uptime = std::fs::read_to_string("/proc/uptime").map_err(|cause| format!("/proc/uptime: {cause}"))?;
    let seconds: f64 = uptime.split(' ').next().and_then(|word| word.parse().ok()).ok_or("/proc/uptime holds no number")?;
    let now = Duration::try_from_secs_f64(seconds).map_err(|cause| format!("/proc/uptime: {cause}"))?;
    match std::fs::read_to_string(STARTED) {
        Ok(text) => Ok(text.trim().parse().map_or(Duration::ZERO, |first| now.saturating_sub(Duration::from_millis(first)))),
        Err(cause) if cause.kind() == ErrorKind::NotFound => {
            std::fs::write(STARTED, format!("{}\n", now.as_millis())).map_err(|cause| format!("{STARTED}: {cause}"))?;
            Ok(Duration::ZERO)
        }
        Err(cause) => Err(format!("{STARTED}: {cause}")),
    }
}
