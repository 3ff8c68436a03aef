//! RAUC over D-Bus, typed: look into a bundle, install one with progress, ask about slots, mark the booted one.
//!
//! [`Rauc`] is what the updater holds; it cannot mark. [`Gate`] is what the health gate holds: only that program and root are allowed to
//! mark by the bus policy, and the type says the same. No rules of ours live here: what may be installed is decided before
//! [`Rauc::install`] is called; facts such as [`BundleInfo::hooks`] and [`BundleInfo::format`] are handed over for that decision.
//!
//! Traps this crate takes care of: the signals are subscribed to before the call, so an install that ends at once is not missed; the
//! service going away ends the wait; arguments that weaken RAUC's own checks cannot be given at all. The caller must have closed its
//! own handle of the bundle file, for RAUC takes a lease on it.

mod bundle;
mod fault;
mod gate;
mod install;
mod proxy;
mod slots;
mod values;

use zbus::Connection;

pub use bundle::{BundleFormat, BundleInfo, ImageInfo};
pub use fault::RaucError;
pub use gate::{Gate, MarkAs, Marked, Which};
pub use install::{InstallArgs, Progress};
pub use slots::{BootStatus, Slot, SlotState};

use proxy::InstallerProxy;

/// The update service, without the right to mark.
#[derive(Clone, Debug)]
pub struct Rauc {
    installer: InstallerProxy<'static>,
}

impl Rauc {
    /// On the given bus; the service is started by the bus when it is first called.
    ///
    /// # Errors
    /// The bus is gone.
    pub async fn new(bus: &Connection) -> Result<Self, RaucError> {
        Ok(Self { installer: InstallerProxy::new(bus).await.map_err(RaucError::from_bus("reach the update service"))? })
    }

    /// The product the running system accepts bundles for.
    ///
    /// # Errors
    /// The service does not answer.
    pub async fn compatible(&self) -> Result<String, RaucError> {
        self.installer.compatible().await.map_err(RaucError::from_bus("ask for the product name"))
    }

    /// Boot name of the running slot; `None` when RAUC does not know it.
    ///
    /// # Errors
    /// The service does not answer.
    pub async fn booted(&self) -> Result<Option<String>, RaucError> {
        let name = self.installer.boot_slot().await.map_err(RaucError::from_bus("ask for the running slot"))?;
        Ok(Some(name).filter(|n| !n.is_empty()))
    }

    /// True while an install is at work, whoever started it.
    ///
    /// # Errors
    /// The service does not answer.
    pub async fn busy(&self) -> Result<bool, RaucError> {
        Ok(self.installer.operation().await.map_err(RaucError::from_bus("ask what it is doing"))? != "idle")
    }
}
