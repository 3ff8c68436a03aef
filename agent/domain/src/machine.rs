//! The machine itself: restart, switch off, and resets. The port through which api, pages and wiring reach the system's own services.

use async_trait::async_trait;

use crate::Problem;

/// What becomes of the machine's power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// Restart.
    Reboot,
    /// Switch off.
    Off,
}

impl Power {
    /// The word of the audit record.
    #[must_use]
    pub const fn action(self) -> &'static str {
        match self {
            Self::Reboot => "system.reboot",
            Self::Off => "system.power-off",
        }
    }
}

/// Power and resets of the machine that the agent runs on.
#[async_trait]
pub trait Machine: Send + Sync {
    /// False where the agent is a guest on somebody's own machine: nothing here is offered then.
    fn offered(&self) -> bool;

    /// Asks the system to restart or switch off. It answers before it happens.
    async fn power(&self, power: Power) -> Result<(), Problem>;

    /// Writes a factory reset down for the next start; returns its id. The caller restarts the machine. With `keep_models` the model
    /// files on the data partition stay.
    async fn request_factory_reset(&self, keep_models: bool) -> Result<String, Problem>;

    /// The id of an admin reset that was done at the last start and that the agent has not applied yet.
    async fn handed_admin_reset(&self) -> Option<String>;

    /// Says that the admin reset of this id is applied, so that no later start hands it over again.
    async fn confirm_admin_reset(&self, id: &str) -> Result<(), Problem>;
}

/// A machine that is not ours to restart: `make run` and the Linux package.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotOurs;

#[async_trait]
impl Machine for NotOurs {
    fn offered(&self) -> bool {
        false
    }

    async fn power(&self, _: Power) -> Result<(), Problem> {
        Err(not_ours())
    }

    async fn request_factory_reset(&self, _: bool) -> Result<String, Problem> {
        Err(not_ours())
    }

    async fn handed_admin_reset(&self) -> Option<String> {
        None
    }

    async fn confirm_admin_reset(&self, _: &str) -> Result<(), Problem> {
        Ok(())
    }
}

fn not_ours() -> Problem {
    Problem::new(crate::ProblemKind::SystemService, "This agent runs on a machine that is not an appliance, and does not restart or reset it.")
        .hint("Stop the agent, or restart the machine with its own tools.")
}
