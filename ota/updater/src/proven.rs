//! What is written over must not be the only system known to start: while the starts of the running one are counted and nobody has found it
//! good, the other slot is what a row of power cuts would end in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rauc_client::{BootStatus, Rauc};
use warden_update_record::{Outcome, Verdict};

use crate::fault::Fault;
use crate::install::other;
use crate::room::{UpdateRoom, blocking};

/// How often the gate's word is looked for.
const LOOK: Duration = Duration::from_secs(1);
/// The gate marks the slot after its word; a mark that does not come sooner is its own issue.
const MARKED_AFTER: Duration = Duration::from_secs(5);
/// A system that was not found good by then has a fault that somebody must look at.
const MOST: Duration = Duration::from_secs(30 * 60);

impl UpdateRoom {
    /// Waits until the running system was found good, where the other slot could still be started instead of it. Where it could not, nothing
    /// is lost by writing it, and another system may be the only cure.
    pub(crate) async fn proven(&self, rauc: &Rauc, cancel: &AtomicBool) -> Result<(), Fault> {
        if !self.machine.counted || other(&rauc.slots().await?)?.boot_status != BootStatus::Good {
            return Ok(());
        }
        let begun = Instant::now();
        let mut waited = false;
        while !self.found_good().await {
            if !std::mem::replace(&mut waited, true) {
                tracing::info!("the other slot is written once the health check has found the running system good");
            }
            if begun.elapsed() > MOST {
                return Err(Fault::Unproven);
            }
            pause(LOOK, cancel).await?;
        }
        if waited {
            pause(MARKED_AFTER, cancel).await?;
        }
        Ok(())
    }

    async fn found_good(&self) -> bool {
        let folder = self.places.health.clone();
        let verdict = blocking(move || Ok(warden_update_record::read::<Verdict>(&folder)?)).await.ok().flatten();
        verdict.is_some_and(|word| word.boot_id == self.machine.boot_id && word.outcome == Outcome::Good)
    }
}

async fn pause(length: Duration, cancel: &AtomicBool) -> Result<(), Fault> {
    let end = Instant::now() + length;
    while Instant::now() < end {
        if cancel.load(Ordering::Relaxed) {
            return Err(Fault::Cancelled);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
