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

/// Refuses a change that only a person who is signed in may make, whatever the role: a token that is found somewhere must not be enough.
///
/// # Errors
/// `Forbidden`, naming the field.
pub fn require_session(principal: &Principal, field: &'static str) -> Result<(), Problem> {
    require(principal, Change::Manage)?;
    // Only a session has a proof for cookie calls.
    if principal.csrf.expose().is_empty() {
        return Err(Problem::new(ProblemKind::Forbidden, format!("`{field}` is set by an administrator who is signed in, not by a token."))
            .hint("Sign in, and set it on the model's page.")
            .param(field));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use warden_domain::{Secret, ids::AccountId};

    use super::*;

    fn with(role: Role) -> Principal {
        Principal { account: AccountId::from_stored("acc_1"), username: "mia".into(), role, csrf: Secret::new(String::new()) }
    }

    #[test]
    fn trust_in_a_models_code_takes_a_person_and_no_token() {
        let session = |role, csrf: &str| Principal { csrf: Secret::new(csrf.to_owned()), ..with(role) };
        assert!(require_session(&session(Role::Admin, "proof"), "x").is_ok());
        assert_eq!(require_session(&session(Role::Admin, ""), "x").unwrap_err().param.as_deref(), Some("x"));
        assert!(require_session(&session(Role::Operator, "proof"), "x").is_err());
    }

    #[test]
    fn a_viewer_changes_nothing_and_an_operator_only_runs_models() {
        assert!(require(&with(Role::Viewer), Change::Run).is_err());
        assert!(require(&with(Role::Operator), Change::Run).is_ok());
        assert!(require(&with(Role::Operator), Change::Manage).is_err());
        assert!(require(&with(Role::Admin), Change::Manage).is_ok());
    }
}
