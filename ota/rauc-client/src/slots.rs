//! The slots and what lies in them.

use crate::Rauc;
use crate::fault::RaucError;
use crate::values::{Map, text_of};

/// What the slot is for the running system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// It runs now.
    Booted,
    /// It belongs to the running one.
    Active,
    /// It is the other one.
    Inactive,
    /// RAUC does not say.
    Unknown,
}

/// What the boot loader thinks of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootStatus {
    /// It may be booted.
    Good,
    /// It is passed over.
    Bad,
    /// RAUC does not say.
    Unknown,
}

/// A slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// RAUC's name: `rootfs.0`.
    pub name: String,
    /// Its class: `rootfs`.
    pub class: Option<String>,
    /// Name at the boot loader: `a`.
    pub bootname: Option<String>,
    /// Device or file.
    pub device: Option<String>,
    /// What it is for the running system.
    pub state: SlotState,
    /// What the boot loader thinks of it.
    pub boot_status: BootStatus,
    /// `ok` once an install into it was complete.
    pub status: Option<String>,
    /// Version of the bundle that was installed last.
    pub version: Option<String>,
    /// Digest of that bundle's manifest, in hex.
    pub bundle_hash: Option<String>,
    /// SHA-256 of the image, in hex.
    pub sha256: Option<String>,
    /// Transaction of that install, as [`crate::InstallArgs::transaction_id`] gave it.
    pub transaction: Option<String>,
    /// When it was installed, as RAUC writes it.
    pub installed: Option<String>,
}

impl Slot {
    fn read(name: String, map: &Map) -> Self {
        Self {
            name,
            class: text_of(map, "class"),
            bootname: text_of(map, "bootname"),
            device: text_of(map, "device"),
            state: match text_of(map, "state").as_deref() {
                Some("booted") => SlotState::Booted,
                Some("active") => SlotState::Active,
                Some("inactive") => SlotState::Inactive,
                _ => SlotState::Unknown,
            },
            boot_status: match text_of(map, "boot-status").as_deref() {
                Some("good") => BootStatus::Good,
                Some("bad") => BootStatus::Bad,
                _ => BootStatus::Unknown,
            },
            status: text_of(map, "status"),
            version: text_of(map, "bundle.version"),
            bundle_hash: text_of(map, "bundle.hash"),
            sha256: text_of(map, "sha256"),
            transaction: text_of(map, "installed.transaction"),
            installed: text_of(map, "installed.timestamp"),
        }
    }
}

impl Rauc {
    /// All slots, in the order of their names.
    ///
    /// # Errors
    /// The service does not answer.
    pub async fn slots(&self) -> Result<Vec<Slot>, RaucError> {
        let listed = self.installer.get_slot_status().await.map_err(RaucError::from_bus("list its slots"))?;
        let mut slots: Vec<_> = listed.into_iter().map(|(name, map)| Slot::read(name, &map)).collect();
        slots.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(slots)
    }

    /// The slot that the next boot will try first.
    ///
    /// # Errors
    /// The service does not answer, or the boot loader names none.
    pub async fn primary(&self) -> Result<String, RaucError> {
        self.installer.get_primary().await.map_err(RaucError::from_bus("ask which slot boots next"))
    }
}
