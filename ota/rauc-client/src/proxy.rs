//! RAUC's interface as it stands on the bus; only what we use.

use std::collections::HashMap;

use zbus::{OwnedVariant, Variant, proxy};

/// Name of the service.
pub(crate) const SERVICE: &str = "de.pengutronix.rauc";

#[proxy(interface = "de.pengutronix.rauc.Installer", default_service = "de.pengutronix.rauc", default_path = "/")]
pub(crate) trait Installer {
    fn inspect_bundle(&self, bundle: &str, args: HashMap<&str, Variant<'_>>) -> zbus::Result<HashMap<String, OwnedVariant>>;
    fn install_bundle(&self, source: &str, args: HashMap<&str, Variant<'_>>) -> zbus::Result<()>;
    fn mark(&self, state: &str, slot: &str) -> zbus::Result<(String, String)>;
    fn get_slot_status(&self) -> zbus::Result<Vec<(String, HashMap<String, OwnedVariant>)>>;
    fn get_primary(&self) -> zbus::Result<String>;

    #[zbus(property(emits_changed_signal = "false"))]
    fn operation(&self) -> zbus::Result<String>;
    #[zbus(property(emits_changed_signal = "false"))]
    fn last_error(&self) -> zbus::Result<String>;
    #[zbus(property(emits_changed_signal = "false"))]
    fn progress(&self) -> zbus::Result<(i32, String, i32)>;
    #[zbus(property(emits_changed_signal = "false"))]
    fn compatible(&self) -> zbus::Result<String>;
    #[zbus(property(emits_changed_signal = "false"))]
    fn boot_slot(&self) -> zbus::Result<String>;

    #[zbus(signal)]
    fn completed(&self, result: i32) -> zbus::Result<()>;
}
