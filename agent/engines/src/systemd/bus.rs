//! The two D-Bus services the runner speaks to: the system manager and the root helper. Only the calls that the bus policy allows.

use std::collections::HashMap;

use zbus::{Connection, OwnedObjectPath, OwnedVariant, proxy};

/// One unit of a listing: name, description, load, active and sub state, followed unit, path, and its waiting job.
pub(super) type ListedUnit = (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

#[proxy(interface = "org.freedesktop.systemd1.Manager", default_service = "org.freedesktop.systemd1", default_path = "/org/freedesktop/systemd1")]
pub(super) trait Manager {
    fn start_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn reset_failed_unit(&self, name: &str) -> zbus::Result<()>;
    fn get_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
    fn list_units_by_patterns(&self, states: &[&str], patterns: &[&str]) -> zbus::Result<Vec<ListedUnit>>;
}

#[proxy(interface = "org.lmwarden.Helper1", default_service = "org.lmwarden.Helper1", default_path = "/org/lmwarden/Helper1")]
pub(super) trait Helper {
    fn activate_pack(&self, replica: &str, digest: &str, gpus: &[&str], memory_max: u64) -> zbus::Result<()>;
}

#[proxy(interface = "org.freedesktop.DBus.Properties", default_service = "org.freedesktop.systemd1", assume_defaults = false)]
pub(super) trait Properties {
    fn get_all(&self, interface_name: &str) -> zbus::Result<HashMap<String, OwnedVariant>>;
}

/// All properties of one interface of a unit.
pub(super) async fn properties(bus: &Connection, unit: &OwnedObjectPath, interface: &str) -> zbus::Result<HashMap<String, OwnedVariant>> {
    PropertiesProxy::builder(bus).path(unit.clone()).build().await?.get_all(interface).await
}
