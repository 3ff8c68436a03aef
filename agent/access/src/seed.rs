//! The first administrator as an unattended installation names it: a user name and the hash of a password nobody here ever saw.

use argon2::password_hash::phc::PasswordHash;
use warden_domain::{Problem, ProblemKind, access::Role, ids::AccountId};
use warden_store::accounts::Account;

use crate::{Access, password};

impl Access {
    /// Makes the first administrator from a password hash (Argon2id, PHC string) and closes setup. On a box that has one already
    /// nothing changes and `false` is returned.
    ///
    /// # Errors
    /// `Invalid` for a name or hash that could never be signed in with; what the store says.
    pub async fn seed_admin(&self, username: &str, password_hash: &str) -> Result<bool, Problem> {
        password::check_username(username)?;
        let sound = PasswordHash::new(password_hash).is_ok_and(|hash| hash.algorithm.as_str() == "argon2id");
        if !sound {
            return Err(Problem::new(ProblemKind::Invalid, "The seeded password hash is not an Argon2id hash.")
                .hint("Give a PHC string that begins with $argon2id$, or claim the box with the code on its screen.")
                .param("password_hash"));
        }
        let account = Account {
            id: AccountId::random(),
            username: username.to_owned(),
            role: Role::Admin,
            password_hash: password_hash.to_owned(),
            created_at: warden_domain::clock::now(),
            disabled_at: None,
        };
        match self.make_admin(account).await {
            Ok(_) => Ok(true),
            Err(problem) if problem.kind == ProblemKind::Conflict => Ok(false),
            Err(problem) => Err(problem),
        }
    }
}
