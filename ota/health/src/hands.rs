//! What the gate does besides looking: it asks RAUC about the other slot, marks, and restarts the machine.

use rauc_client::{BootStatus, Gate, MarkAs, Rauc, SlotState, Which};
use zbus::Connection;

/// The gate's hands; a test has others.
pub trait Hands {
    /// Whether the slot that does not run may be started.
    fn other_is_good(&self) -> impl Future<Output = Result<bool, String>> + Send;
    /// Marks the running slot.
    fn mark(&self, good: bool) -> impl Future<Output = Result<(), String>> + Send;
    /// Restarts the machine.
    fn restart(&self) -> impl Future<Output = Result<(), String>> + Send;
}

/// Those of the appliance, over the system bus.
#[derive(Debug, Clone)]
pub struct BusHands(pub Connection);

impl Hands for BusHands {
    async fn other_is_good(&self) -> Result<bool, String> {
        let slots = Rauc::new(&self.0).await.map_err(|e| e.to_string())?.slots().await.map_err(|e| e.to_string())?;
        let mut others = slots.iter().filter(|slot| slot.bootname.is_some() && slot.state != SlotState::Booted);
        Ok(others.any(|slot| slot.boot_status == BootStatus::Good))
    }

    async fn mark(&self, good: bool) -> Result<(), String> {
        let gate = Gate::new(&self.0).await.map_err(|e| e.to_string())?;
        let mark = if good { MarkAs::Good } else { MarkAs::Bad };
        let marked = gate.mark(mark, &Which::Booted).await.map_err(|e| e.to_string())?;
        tracing::info!(slot = marked.slot, "{}", marked.message);
        Ok(())
    }

    async fn restart(&self) -> Result<(), String> {
        let manager = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager");
        match self.0.call_method(Some(manager.0), manager.1, Some(manager.2), "Reboot", &(false)).await {
            Ok(_) => Ok(()),
            // The service may go down before it answers; that is a taken wish.
            Err(zbus::Error::FDO(inner)) if matches!(*inner, zbus::fdo::Error::NoReply(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}
