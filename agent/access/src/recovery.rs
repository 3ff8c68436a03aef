//! The password reset that an admin reset at the local screen opens: the ports `Recovery` and `Audit`.
//!
//! The code has the form and the limits of a claim code and lies in the store until it is used, so that a restart shows the same one.

use std::{
    collections::VecDeque,
    sync::{Arc, PoisonError},
};

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind, Secret,
    access::{ClientAddr, NewSession, Principal, Role},
    change::Topic,
    clock,
    recovery::{Audit, Recovery},
};
use warden_store::{
    StoreError,
    accounts::{self, Account},
    audit::{self, AuditRow},
    recovery, rusqlite, settings,
};

use crate::{
    Access,
    claim::{Claim, Try},
    password,
    people::{Fresh, audited},
    token,
};

/// Where the code lies while a reset is open.
pub(crate) const CODE_SETTING: &str = "access.reset";
/// Ids of the resets that were opened, one a line.
const OPENED_SETTING: &str = "access.resets";
/// Ids kept. More admin resets than that are not made in the life of a box.
const OPENED_KEPT: usize = 256;

#[async_trait]
impl Recovery for Access {
    async fn reset_code(&self) -> Option<Secret<String>> {
        self.reset.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|claim| claim.code().clone())
    }

    async fn admin_names(&self) -> Result<Vec<String>, Problem> {
        Ok(self.store.read(recovery::admin_names).await?)
    }

    async fn open_reset(&self, id: &str) -> Result<bool, Problem> {
        let unknown = self.hasher.hash(&Secret::new(token::random_text())).await?;
        let (store, reset, changes, id) = (self.store.clone(), Arc::clone(&self.reset), self.changes.clone(), id.to_owned());
        // Runs to its end even when the caller leaves, so that what this process believes is what the store says.
        let task = tokio::spawn(async move {
            let claim = Claim::fresh();
            let code = claim.code().clone();
            let opened = store.write(move |tx| open(tx, &id, code.expose(), &unknown)).await?;
            if opened {
                *reset.lock().unwrap_or_else(PoisonError::into_inner) = Some(claim);
                changes.publish(Topic::Setup);
                tracing::warn!("an admin reset was asked for at the machine: passwords of admins no longer work, the code is on its screen");
            }
            Ok::<bool, Problem>(opened)
        });
        task.await.unwrap_or_else(|_| Err(Problem::internal("Opening the password reset broke off.")))
    }

    async fn reset_password(&self, from: ClientAddr, code: &str, username: &str, password: &Secret<String>) -> Result<NewSession, Problem> {
        if self.reset_code().await.is_none() {
            return Err(closed());
        }
        password::check_password(username, password)?;
        self.admit(from)?;
        self.try_reset_code(from, code).await?;
        let name = username.to_owned();
        let found = self.store.read(move |db| accounts::by_username(db, &name)).await?;
        let Some(account) = found.filter(|account| account.role == Role::Admin && account.disabled_at.is_none()) else {
            let names = self.admin_names().await?.join(", ");
            return Err(Problem::new(ProblemKind::NotFound, "There is no admin of this name.")
                .hint(format!("Admins here: {names}."))
                .param("username"));
        };
        let hash = self.hasher.hash(password).await?;
        self.slowdown().succeeded(from.into());
        self.set_password(account, hash).await
    }
}

#[async_trait]
impl Audit for Access {
    async fn note(&self, by: &Principal, action: &'static str, subject: Option<String>, outcome: &'static str) -> Result<(), Problem> {
        let row = AuditRow { at: clock::now(), account: Some(by.account.clone()), action, subject, outcome };
        Ok(self.store.write(move |tx| audit::insert(tx, &row)).await?)
    }
}

impl Access {
    /// Judges a reset code; a wrong one is counted, held back and audited.
    async fn try_reset_code(&self, from: ClientAddr, code: &str) -> Result<(), Problem> {
        let (judged, new_code) = {
            let mut reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(reset) = reset.as_mut() else { return Err(closed()) };
            (reset.judge(code), reset.code().clone())
        };
        let hint = match judged {
            Try::Right => return Ok(()),
            Try::Wrong { left } => format!("Look at the screen of the appliance. Tries left before the code changes: {left}."),
            Try::Replaced => {
                let kept = self.store.write(move |tx| settings::set(tx, CODE_SETTING, new_code.expose())).await;
                if let Err(error) = kept {
                    tracing::warn!(%error, "the new reset code could not be kept");
                }
                self.changes.publish(Topic::Setup);
                tracing::warn!("ten wrong reset codes were tried, there is a new one");
                "There were ten wrong tries: a new code is on the screen of the appliance now.".to_owned()
            }
        };
        let row = audited("password.reset", None, "refused");
        if let Err(error) = self.store.write(move |tx| audit::insert(tx, &row)).await {
            tracing::warn!(%error, "a refused reset code could not be audited");
        }
        self.hold_back(from).await;
        Err(Problem::new(ProblemKind::Forbidden, "This is not the reset code.").hint(hint).param("reset_code"))
    }

    /// Sets the password, closes the reset and opens a session, in one transaction.
    async fn set_password(&self, account: Account, hash: String) -> Result<NewSession, Problem> {
        let (store, reset, changes) = (self.store.clone(), Arc::clone(&self.reset), self.changes.clone());
        let task = tokio::spawn(async move {
            let session = Fresh::new();
            let new = session.opened(&account);
            store
                .write(move |tx| {
                    // Somebody else may have used the code in the meantime.
                    if settings::get(tx, CODE_SETTING)?.is_none() {
                        return Err(closed().into());
                    }
                    recovery::set_password(tx, &account.id, &hash)?;
                    recovery::end_all_sessions(tx)?;
                    settings::remove(tx, CODE_SETTING)?;
                    session.insert(tx, &account)?;
                    audit::insert(tx, &audited("password.reset", Some(&account), "ok"))
                })
                .await?;
            *reset.lock().unwrap_or_else(PoisonError::into_inner) = None;
            changes.publish(Topic::Setup);
            Ok::<NewSession, Problem>(new)
        });
        task.await.unwrap_or_else(|_| Err(Problem::internal("Setting the password broke off.")))
    }
}

/// The transaction of an opening. An id is opened once; what is on the list is not looked at again.
fn open(tx: &rusqlite::Transaction<'_>, id: &str, code: &str, unknown_hash: &str) -> Result<bool, StoreError> {
    let before = settings::get(tx, OPENED_SETTING)?.unwrap_or_default();
    let mut opened: VecDeque<&str> = before.lines().collect();
    if opened.contains(&id) {
        return Ok(false);
    }
    opened.push_back(id);
    while opened.len() > OPENED_KEPT {
        opened.pop_front();
    }
    settings::set(tx, OPENED_SETTING, &Vec::from(opened).join("\n"))?;
    if !accounts::admin_exists(tx)? {
        return Ok(false);
    }
    recovery::replace_admin_passwords(tx, unknown_hash)?;
    recovery::end_all_sessions(tx)?;
    settings::set(tx, CODE_SETTING, code)?;
    let row = AuditRow { at: clock::now(), account: None, action: "password.reset-opened", subject: Some(id.to_owned()), outcome: "ok" };
    audit::insert(tx, &row)?;
    Ok(true)
}

fn closed() -> Problem {
    Problem::new(ProblemKind::Conflict, "No password reset is open.")
        .hint("Sign in, or choose the admin password reset at the screen of the machine.")
}
