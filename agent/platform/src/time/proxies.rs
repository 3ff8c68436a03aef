//! The time services' D-Bus interfaces, as far as they are used here.

use zbus::{OwnedObjectPath, proxy};

/// The time client's unit.
pub const CLIENT: &str = "systemd-timesyncd.service";

#[proxy(interface = "org.freedesktop.timedate1", default_service = "org.freedesktop.timedate1", default_path = "/org/freedesktop/timedate1")]
pub trait Timedate {
    fn set_time(&self, microseconds: i64, relative: bool, interactive: bool) -> zbus::Result<()>;
    #[zbus(property(emits_changed_signal = "false"), name = "NTPSynchronized")]
    fn synchronized(&self) -> zbus::Result<bool>;
    #[zbus(property(emits_changed_signal = "false"), name = "RTCTimeUSec")]
    fn hardware_clock(&self) -> zbus::Result<u64>;
}

/// Asking this service starts the time client: leave it alone while the clock is set by hand.
#[proxy(interface = "org.freedesktop.timesync1.Manager", default_service = "org.freedesktop.timesync1", default_path = "/org/freedesktop/timesync1")]
pub trait Timesync {
    #[zbus(name = "SetRuntimeNTPServers")]
    fn set_servers(&self, servers: &[String]) -> zbus::Result<()>;
    #[zbus(property(emits_changed_signal = "false"), name = "RuntimeNTPServers")]
    fn servers(&self) -> zbus::Result<Vec<String>>;
    #[zbus(property(emits_changed_signal = "false"), name = "ServerName")]
    fn server(&self) -> zbus::Result<String>;
}

#[proxy(interface = "org.freedesktop.systemd1.Manager", default_service = "org.freedesktop.systemd1", default_path = "/org/freedesktop/systemd1")]
pub trait Units {
    fn start_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn stop_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn get_unit(&self, name: &str) -> zbus::Result<OwnedObjectPath>;
}

#[proxy(interface = "org.freedesktop.systemd1.Unit", default_service = "org.freedesktop.systemd1", assume_defaults = false)]
pub trait Unit {
    #[zbus(property(emits_changed_signal = "false"))]
    fn active_state(&self) -> zbus::Result<String>;
}
