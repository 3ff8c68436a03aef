//! Marking slots: for the health gate, and for root's manual rollback. Nobody else holds this type.

use zbus::Connection;

use crate::fault::RaucError;
use crate::proxy::InstallerProxy;

/// As what a slot is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkAs {
    /// It works; the trial is over.
    Good,
    /// It does not work; the next boot takes the other one.
    Bad,
    /// The next boot tries it. Never for the booted slot while a trial is pending.
    Active,
}

/// Which slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// The one that runs.
    Booted,
    /// The other one.
    Other,
    /// By RAUC's name.
    Named(String),
}

/// What RAUC did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// The slot.
    pub slot: String,
    /// RAUC's words.
    pub message: String,
}

/// The right to mark slots.
#[derive(Clone, Debug)]
pub struct Gate {
    installer: InstallerProxy<'static>,
}

impl Gate {
    /// On the given bus.
    ///
    /// # Errors
    /// The bus is gone.
    pub async fn new(bus: &Connection) -> Result<Self, RaucError> {
        Ok(Self { installer: InstallerProxy::new(bus).await.map_err(RaucError::from_bus("reach the update service"))? })
    }

    /// Marks a slot.
    ///
    /// # Errors
    /// [`RaucError::Denied`] for everybody but the gate and root; RAUC or the boot-slot program failed; no answer.
    pub async fn mark(&self, mark: MarkAs, which: &Which) -> Result<Marked, RaucError> {
        let state = match mark {
            MarkAs::Good => "good",
            MarkAs::Bad => "bad",
            MarkAs::Active => "active",
        };
        let slot = match which {
            Which::Booted => "booted",
            Which::Other => "other",
            Which::Named(name) => name,
        };
        let (slot, message) = self.installer.mark(state, slot).await.map_err(RaucError::from_bus("mark a slot"))?;
        Ok(Marked { slot, message })
    }
}
