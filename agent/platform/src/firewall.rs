//! The one hole in the packet filter that an admin can make: the unit `warden-plain.service`, whose fixed command line lets the plain
//! port through while it is active.
//!
//! In: a wish. Out: the unit started or stopped over D-Bus, with its outcome. What passes at all is the image's ruleset.

use std::time::Duration;

use warden_domain::{Problem, ProblemKind};
use zbus::{Connection, OwnedObjectPath, OwnedVariant, proxy};

/// The unit; bus policy and polkit allow this exact name.
const UNIT: &str = "warden-plain.service";
const LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

#[proxy(interface = "org.freedesktop.systemd1.Manager", default_service = "org.freedesktop.systemd1", default_path = "/org/freedesktop/systemd1")]
trait Manager {
    fn start_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn get_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
}

#[proxy(interface = "org.freedesktop.DBus.Properties", default_service = "org.freedesktop.systemd1", assume_defaults = false)]
trait Properties {
    fn get(&self, interface_name: &str, property_name: &str) -> zbus::Result<OwnedVariant>;
}

/// Lets others through to the plain port, or no longer.
///
/// # Errors
/// `SystemService`: no bus, the system manager refuses, or the unit fails.
pub async fn let_plain_through(open: bool) -> Result<(), Problem> {
    match tokio::time::timeout(LIMIT, ask(open)).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(problem(open, &format!("the unit {UNIT} failed"))),
        Ok(Err(error)) => Err(problem(open, &error.to_string())),
        Err(_) => Err(problem(open, "the system manager did not answer in time")),
    }
}

/// Asks for it and waits for the outcome; true when the unit is as it was wished.
async fn ask(open: bool) -> zbus::Result<bool> {
    let bus = Connection::system().await?;
    let manager = ManagerProxy::new(&bus).await?;
    if open {
        manager.start_unit(UNIT, "replace").await?;
    } else {
        manager.stop_unit(UNIT, "replace").await?;
    }
    loop {
        let state = match manager.get_unit(UNIT).await {
            Ok(path) => {
                let properties = PropertiesProxy::builder(&bus).path(path).build().await?;
                let value = properties.get("org.freedesktop.systemd1.Unit", "ActiveState").await?;
                String::try_from(value).unwrap_or_default()
            }
            // A unit that is not active may be forgotten by the system manager at any moment.
            Err(zbus::Error::MethodError(name, ..)) if name.as_str().ends_with("NoSuchUnit") => "inactive".to_owned(),
            Err(error) => return Err(error),
        };
        match (state.as_str(), open) {
            ("active", true) | ("inactive" | "failed", false) => return Ok(true),
            ("failed", true) => return Ok(false),
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

fn problem(open: bool, why: &str) -> Problem {
    let deed = if open { "let the plain port through" } else { "shut the plain port" };
    Problem::new(ProblemKind::SystemService, format!("The packet filter could not {deed}: {}.", why.trim_end_matches('.')))
        .hint("Try again; if it repeats, restart the machine. The encrypted port is not affected.")
}
