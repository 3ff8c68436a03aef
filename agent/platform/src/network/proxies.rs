//! NetworkManager's D-Bus interface, as far as it is used here.

use std::collections::HashMap;

use zbus::{OwnedObjectPath, OwnedVariant, proxy};

/// A connection profile: settings by section and key.
pub type Settings = HashMap<String, HashMap<String, OwnedVariant>>;
/// Every object with the properties of its interfaces.
pub type Objects = HashMap<OwnedObjectPath, HashMap<String, HashMap<String, OwnedVariant>>>;

/// Checkpoint flag: profiles made after it are deleted. (The flag that disconnects new devices is for checkpoints of all devices only.)
pub const ROLLBACK_DELETES_NEW: u32 = 2;
/// Keep a new profile in memory only, and do not connect with it by itself.
pub const IN_MEMORY_BLOCKED: u32 = 0x2 | 0x20;
/// Write a profile to disk.
pub const TO_DISK: u32 = 0x1;

#[proxy(interface = "org.freedesktop.DBus.ObjectManager", default_service = "org.freedesktop.NetworkManager", default_path = "/org/freedesktop")]
pub trait ObjectManager {
    fn get_managed_objects(&self) -> zbus::Result<Objects>;
}

#[proxy(
    interface = "org.freedesktop.NetworkManager",
    default_service = "org.freedesktop.NetworkManager",
    default_path = "/org/freedesktop/NetworkManager"
)]
pub trait Manager {
    fn checkpoint_create(&self, devices: &[zbus::ObjectPath<'_>], rollback_timeout: u32, flags: u32) -> zbus::Result<OwnedObjectPath>;
    fn checkpoint_destroy(&self, checkpoint: &zbus::ObjectPath<'_>) -> zbus::Result<()>;
    fn checkpoint_rollback(&self, checkpoint: &zbus::ObjectPath<'_>) -> zbus::Result<HashMap<String, u32>>;
    fn activate_connection(
        &self,
        connection: &zbus::ObjectPath<'_>,
        device: &zbus::ObjectPath<'_>,
        specific: &zbus::ObjectPath<'_>,
    ) -> zbus::Result<OwnedObjectPath>;
}

#[proxy(
    interface = "org.freedesktop.NetworkManager.Settings",
    default_service = "org.freedesktop.NetworkManager",
    default_path = "/org/freedesktop/NetworkManager/Settings"
)]
pub trait Profiles {
    fn add_connection2(
        &self,
        settings: &Settings,
        flags: u32,
        args: &HashMap<&str, OwnedVariant>,
    ) -> zbus::Result<(OwnedObjectPath, HashMap<String, OwnedVariant>)>;
}

#[proxy(
    interface = "org.freedesktop.NetworkManager.Settings.Connection",
    default_service = "org.freedesktop.NetworkManager",
    assume_defaults = false
)]
pub trait Profile {
    fn get_settings(&self) -> zbus::Result<Settings>;
    fn update2(&self, settings: &Settings, flags: u32, args: &HashMap<&str, OwnedVariant>) -> zbus::Result<HashMap<String, OwnedVariant>>;
    fn delete(&self) -> zbus::Result<()>;
}

#[proxy(interface = "org.freedesktop.NetworkManager.Device", default_service = "org.freedesktop.NetworkManager", assume_defaults = false)]
pub trait Device {
    #[zbus(signal)]
    fn state_changed(&self, new: u32, old: u32, reason: u32) -> zbus::Result<()>;
}
