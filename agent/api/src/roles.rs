//! Which role may make which change. Reading is for every signed-in account.

use warden_domain::{
    Problem, ProblemKind,
    access::{Principal, Role},
};

/// Kinds of change, by what they touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Load or unload a model.
    Run,
    /// Register or forget models; make or revoke keys; settings of the box: network, name, clock.
    Manage,
}

/// Refuses a change that the principal's role does not cover.
///
/// # Errors
/// `Forbidden`, naming the role it takes.
pub fn require(principal: &Principal, change: Change) -> Result<(), Problem> {
    let allowed = match (principal.role, change) {
        (Role::Admin, _) | (Role::Operator, Change::Run) => true,
        (Role::Operator, Change::Manage) | (Role::Viewer, _) => false,
    };
    if allowed {
        return Ok(());
    }
    let needed = if change == Change::Run { "operator" } else { "admin" };
    Err(Problem::new(ProblemKind::Forbidden, format!("{} has the role {}, which may not do this.", principal.username, principal.role.as_str()))
        .hint(format!("Ask someone with the role {needed}.")))
}

#[cfg(test)]
mod tests {
    use warden_domain::{Secret, ids::AccountId};

    use super::*;

    fn with(role: Role) -> Principal {
        Principal { account: AccountId::from_stored("acc_1"), username: "mia".into(), role, csrf: Secret::new(String::new()) }
    }

    #[test]
    fn a_viewer_changes_nothing_and_an_operator_only_runs_models() {
        assert!(require(&with(Role::Viewer), Change::Run).is_err());
        assert!(require(&with(Role::Operator), Change::Run).is_ok());
        assert!(require(&with(Role::Operator), Change::Manage).is_err());
        assert!(require(&with(Role::Admin), Change::Manage).is_ok());
    }
}
