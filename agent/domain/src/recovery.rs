//! Getting back in after an admin reset at the local screen: a code shown there lets an existing admin set a new password. It never
//! makes an account and never opens setup again.

use async_trait::async_trait;

use crate::{
    Problem, Secret,
    access::{ClientAddr, NewSession, Principal},
};

/// The port of the password reset.
#[async_trait]
pub trait Recovery: Send + Sync {
    /// The code to show at the box, while a reset is open.
    async fn reset_code(&self) -> Option<Secret<String>>;

    /// Names of the admins, for the local screen.
    async fn admin_names(&self) -> Result<Vec<String>, Problem>;

    /// Opens a password reset: admins' passwords stop working, everybody is signed out, there is a fresh code. An id that was opened
    /// before does nothing, and without an admin there is nothing to open; both are fine. Returns whether it was opened.
    async fn open_reset(&self, id: &str) -> Result<bool, Problem>;

    /// Sets the password of an existing admin with the code and signs it in; the code is then worthless. `Conflict` when no reset is
    /// open, `Forbidden` for a wrong code (counted: after 10 a new code replaces it), `NotFound` for a name that is no admin's and
    /// `Invalid` for a password that is not allowed (the code stays good).
    async fn reset_password(&self, from: ClientAddr, code: &str, username: &str, password: &Secret<String>) -> Result<NewSession, Problem>;
}

/// The record of what was done to the box, for deeds that no store of their own records.
#[async_trait]
pub trait Audit: Send + Sync {
    /// Notes a deed: who, what (`system.reboot`), to what, and `ok` or `refused`. Returns when it is on disk.
    async fn note(&self, by: &Principal, action: &'static str, subject: Option<String>, outcome: &'static str) -> Result<(), Problem>;
}
