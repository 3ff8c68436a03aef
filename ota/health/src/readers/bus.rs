//! What the system manager and the bus itself say.

use tokio::time::timeout;
use zbus::fdo::DBusProxy;
use zbus::{Connection, OwnedObjectPath, OwnedVariant};

use super::PATIENCE;
use crate::facts::{BusNames, Told, Unit};

const MANAGER: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";

async fn patient<T>(ask: impl Future<Output = zbus::Result<T>>) -> Told<T> {
    match timeout(PATIENCE, ask).await {
        Ok(answer) => answer.map_err(|cause| cause.to_string()),
        Err(_) => Err(format!("no answer within {} seconds", PATIENCE.as_secs())),
    }
}

/// State and restarts of a unit.
pub(super) async fn unit(bus: &Connection, name: &str) -> Told<Unit> {
    patient(async {
        let answer = bus.call_method(Some(MANAGER), MANAGER_PATH, Some("org.freedesktop.systemd1.Manager"), "LoadUnit", &(name)).await?;
        let path: OwnedObjectPath = answer.body().deserialize()?;
        let get = async |interface: &str, property: &str| -> zbus::Result<OwnedVariant> {
            let answer = bus.call_method(Some(MANAGER), &*path, Some("org.freedesktop.DBus.Properties"), "Get", &(interface, property)).await?;
            answer.body().deserialize()
        };
        let state = get("org.freedesktop.systemd1.Unit", "ActiveState").await?;
        let restarts = get("org.freedesktop.systemd1.Service", "NRestarts").await?;
        Ok(Unit { state: String::try_from(state)?, restarts: u32::try_from(restarts)? })
    })
    .await
}

/// Names of failed units.
pub(super) async fn failed_units(bus: &Connection) -> Told<Vec<String>> {
    type Listed = (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);
    patient(async {
        let wanted = (vec!["failed"],);
        let answer = bus.call_method(Some(MANAGER), MANAGER_PATH, Some("org.freedesktop.systemd1.Manager"), "ListUnitsFiltered", &wanted).await?;
        let units: Vec<Listed> = answer.body().deserialize()?;
        Ok(units.into_iter().map(|unit| unit.0).collect())
    })
    .await
}

/// Names on the bus.
pub(super) async fn names(bus: &Connection) -> Told<BusNames> {
    patient(async {
        let bus = DBusProxy::new(bus).await?;
        let text = |names: Vec<zbus::names::OwnedBusName>| names.into_iter().map(|name| name.to_string()).collect();
        let (owned, activatable) = (bus.list_names().await?, bus.list_activatable_names().await?);
        Ok(BusNames { owned: text(owned), activatable: text(activatable) })
    })
    .await
}
