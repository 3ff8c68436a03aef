//! The agent's part of an admin reset that somebody asked for at the machine: opens the password reset, once, then says so to the helper.
//!
//! A box whose reset cannot be opened still starts: the next start tries again, because nobody confirmed it.

use warden_domain::{machine::Machine, recovery::Recovery};

/// Applies the admin reset that the last start handed over, if there is one.
pub async fn apply(machine: &dyn Machine, recovery: &dyn Recovery) {
    let Some(id) = machine.handed_admin_reset().await else { return };
    match recovery.open_reset(&id).await {
        Ok(opened) => {
            tracing::info!(id, opened, "the admin reset of this start is applied");
            if let Err(problem) = machine.confirm_admin_reset(&id).await {
                tracing::warn!(id, "{}", problem.full_text());
            }
        }
        Err(problem) => tracing::error!(id, "the admin reset could not be applied: {}", problem.full_text()),
    }
}
