//! Claim, login, sessions: the port `Accounts`.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind, Secret,
    access::{Accounts, ClientAddr, NewSession, Principal, Role, SetupState},
    change::Topic,
    clock,
    ids::AccountId,
};
use warden_store::{
    StoreError,
    accounts::{self, Account},
    audit::{self, AuditRow},
    sessions, settings,
};

use crate::{Access, claim::Try, password, room::CLAIM_SETTING, token};

/// Life of a session.
pub(crate) const SESSION: Duration = Duration::from_secs(7 * 24 * 3600);

#[async_trait]
impl Accounts for Access {
    async fn setup_state(&self) -> Result<SetupState, Problem> {
        let done = self.claim.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        Ok(SetupState { done, step: if done { "done" } else { "claim" }.to_owned() })
    }

    async fn claim_code(&self) -> Result<Option<Secret<String>>, Problem> {
        Ok(self.claim.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|c| c.code().clone()))
    }

    async fn claim(&self, from: ClientAddr, code: &str, username: &str, password: &Secret<String>) -> Result<NewSession, Problem> {
        if self.setup_state().await?.done {
            return Err(setup_done());
        }
        password::check_username(username)?;
        password::check_password(username, password)?;
        self.admit(from)?;
        self.try_code(from, code).await?;
        let password_hash = self.hasher.hash(password).await?;
        let account = Account {
            id: AccountId::random(),
            username: username.to_owned(),
            role: Role::Admin,
            password_hash,
            created_at: clock::now(),
            disabled_at: None,
        };
        self.make_admin(account).await
    }

    async fn login(&self, from: ClientAddr, username: &str, password: &Secret<String>) -> Result<NewSession, Problem> {
        self.admit(from)?;
        let name = username.to_owned();
        let account = self.store.read(move |db| accounts::by_username(db, &name)).await?.filter(|a| a.disabled_at.is_none());
        let phc = account.as_ref().map(|a| a.password_hash.clone());
        let right = self.hasher.verify(phc, password).await?;
        let Some(account) = account.filter(|_| right) else {
            self.note_refused("login", username).await;
            self.hold_back(from).await;
            return Err(Problem::new(ProblemKind::Unauthorized, "User name or password is wrong."));
        };
        self.slowdown().succeeded(from.into());
        let session = Fresh::new();
        let new = session.opened(&account);
        self.store
            .write(move |tx| {
                session.insert(tx, &account)?;
                audit::insert(tx, &audited("login", Some(&account), "ok"))
            })
            .await?;
        Ok(new)
    }

    async fn logout(&self, cookie: &str) -> Result<(), Problem> {
        let hash = token::digest(cookie);
        Ok(self.store.write(move |tx| sessions::delete(tx, &hash)).await?)
    }

    async fn session(&self, cookie: &str) -> Result<Option<Principal>, Problem> {
        let hash = token::digest(cookie);
        Ok(self.store.read(move |db| sessions::principal(db, &hash, clock::now())).await?)
    }
}

impl Access {
    /// Judges a claim code; a wrong one is counted, held back and audited.
    async fn try_code(&self, from: ClientAddr, code: &str) -> Result<(), Problem> {
        let (judged, new_code) = {
            let mut claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(claim) = claim.as_mut() else { return Err(setup_done()) };
            (claim.judge(code), claim.code().clone())
        };
        let hint = match judged {
            Try::Right => return Ok(()),
            Try::Wrong { left } => {
                format!("Look at the screen of the appliance (or where the agent was started). Tries left before the code changes: {left}.")
            }
            Try::Replaced => {
                // In force from now on even if the disk does not take it; then a restart shows yet another one.
                let kept = self.store.write(move |tx| replace_code(tx, new_code.expose())).await;
                if let Err(error) = kept {
                    tracing::warn!(%error, "the new claim code could not be kept");
                }
                self.changes.publish(Topic::Setup);
                tracing::warn!("ten wrong claim codes were tried, there is a new one");
                "There were ten wrong tries: a new code is on the screen of the appliance now.".to_owned()
            }
        };
        self.note_refused("claim", "").await;
        self.hold_back(from).await;
        Err(Problem::new(ProblemKind::Forbidden, "This is not the claim code.").hint(hint).param("claim_code"))
    }

    /// Makes the first admin and closes setup in one transaction. Runs to its end even when the caller leaves, so that what this
    /// process believes about setup is what the store says.
    pub(crate) async fn make_admin(&self, account: Account) -> Result<NewSession, Problem> {
        let (store, claim, changes) = (self.store.clone(), Arc::clone(&self.claim), self.changes.clone());
        let task = tokio::spawn(async move {
            let session = Fresh::new();
            let new = session.opened(&account);
            let made = store
                .write(move |tx| {
                    if accounts::admin_exists(tx)? {
                        return Err(setup_done().into());
                    }
                    accounts::insert(tx, &account)?;
                    settings::remove(tx, CLAIM_SETTING)?;
                    session.insert(tx, &account)?;
                    audit::insert(tx, &audited("claim", Some(&account), "ok"))
                })
                .await;
            made?;
            *claim.lock().unwrap_or_else(PoisonError::into_inner) = None;
            changes.publish(Topic::Setup);
            Ok(new)
        });
        task.await.unwrap_or_else(|_| Err(Problem::internal("Making the admin broke off.")))
    }

    /// Audits a refused try. The name typed is kept only if it is an account's: people type passwords into the wrong field.
    async fn note_refused(&self, action: &'static str, username: &str) {
        let name = username.to_owned();
        let noted = self
            .store
            .write(move |tx| {
                let account = accounts::by_username(tx, &name)?;
                audit::insert(tx, &audited(action, account.as_ref(), "refused"))
            })
            .await;
        if let Err(error) = noted {
            tracing::warn!(%error, action, "a refused try could not be audited");
        }
    }
}

/// A session about to be stored.
pub(crate) struct Fresh {
    cookie: Secret<String>,
    csrf: Secret<String>,
    now: jiff::Timestamp,
    expires_at: jiff::Timestamp,
}

impl Fresh {
    pub(crate) fn new() -> Self {
        let now = clock::now();
        Self { cookie: Secret::new(token::random_text()), csrf: Secret::new(token::random_text()), now, expires_at: now + SESSION }
    }

    pub(crate) fn opened(&self, account: &Account) -> NewSession {
        NewSession {
            cookie: self.cookie.clone(),
            expires_at: self.expires_at,
            principal: Principal { account: account.id.clone(), username: account.username.clone(), role: account.role, csrf: self.csrf.clone() },
        }
    }

    pub(crate) fn insert(&self, tx: &warden_store::rusqlite::Transaction<'_>, account: &Account) -> Result<(), StoreError> {
        sessions::insert(tx, &token::digest(self.cookie.expose()), &account.id, self.csrf.expose(), self.now, self.expires_at)
    }
}

fn replace_code(tx: &warden_store::rusqlite::Transaction<'_>, code: &str) -> Result<(), StoreError> {
    if accounts::admin_exists(tx)? {
        return Ok(());
    }
    settings::set(tx, CLAIM_SETTING, code)
}

pub(crate) fn audited(action: &'static str, account: Option<&Account>, outcome: &'static str) -> AuditRow {
    AuditRow { at: clock::now(), account: account.map(|a| a.id.clone()), action, subject: account.map(|a| a.username.clone()), outcome }
}

fn setup_done() -> Problem {
    Problem::new(ProblemKind::Conflict, "This box has an admin already; setup is closed.").hint("Sign in with the admin account.")
}
