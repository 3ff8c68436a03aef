//! Who may do what in a world: its account, sessions, keys, and the machine's power.

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind, Secret,
    access::{Accounts, ClientAddr, NewSession, Principal, Role, SetupState},
    change::Topic,
    clock,
    ids::{AccountId, KeyId},
    key::{Caller, Key, KeyDirectory, KeyRefusal, Keys, NewKey, Priority},
    machine::{Machine, Power},
    recovery::{Audit, Recovery},
    usage::UsageTotals,
};

use super::{CLAIM_CODE, CSRF, World, earlier, not_found};

impl World {
    fn session_of(&self, cookie: &str) -> Option<Principal> {
        let memory = self.memory.lock().unwrap();
        let (name, _, role) = memory.account.clone()?;
        memory.sessions.iter().any(|known| known == cookie).then(|| Principal {
            account: AccountId::from_stored("acc_ada"),
            username: name,
            role,
            csrf: Secret::new(CSRF.to_owned()),
        })
    }

    fn begin_session(&self) -> NewSession {
        let cookie = KeyId::random().to_string();
        self.memory.lock().unwrap().sessions.push(cookie.clone());
        let principal = self.session_of(&cookie).unwrap();
        NewSession { cookie: Secret::new(cookie), expires_at: earlier(-86_400), principal }
    }
}

#[async_trait]
impl Accounts for World {
    async fn setup_state(&self) -> Result<SetupState, Problem> {
        let done = self.memory.lock().unwrap().account.is_some();
        Ok(SetupState { done, step: if done { "done" } else { "claim" }.to_owned() })
    }

    async fn claim_code(&self) -> Result<Option<Secret<String>>, Problem> {
        Ok(self.memory.lock().unwrap().account.is_none().then(|| Secret::new(CLAIM_CODE.to_owned())))
    }

    async fn claim(&self, _: ClientAddr, code: &str, username: &str, password: &Secret<String>) -> Result<NewSession, Problem> {
        self.failing()?;
        if self.memory.lock().unwrap().account.is_some() {
            return Err(Problem::new(ProblemKind::Conflict, "This box is already set up.").hint("Sign in with the account that was made."));
        }
        if username.is_empty() || password.expose().chars().count() < 12 {
            return Err(Problem::new(ProblemKind::Invalid, "The password has fewer than 12 characters.")
                .hint("Use a few words in a row.")
                .param("password"));
        }
        if code != CLAIM_CODE {
            return Err(Problem::new(ProblemKind::Forbidden, "The claim code is not the one of this box.")
                .hint("Read it again from its screen. 9 tries are left before it changes."));
        }
        self.memory.lock().unwrap().account = Some((username.to_owned(), password.expose().clone(), Role::Admin));
        self.changes.publish(Topic::Setup);
        Ok(self.begin_session())
    }

    async fn login(&self, _: ClientAddr, username: &str, password: &Secret<String>) -> Result<NewSession, Problem> {
        self.failing()?;
        let known = self.memory.lock().unwrap().account.clone();
        match known {
            Some((name, word, _)) if name == username && word == *password.expose() => Ok(self.begin_session()),
            _ => {
                Err(Problem::new(ProblemKind::Unauthorized, "User name or password is wrong.")
                    .hint("Check both; the password has upper and lower case."))
            }
        }
    }

    async fn logout(&self, cookie: &str) -> Result<(), Problem> {
        self.memory.lock().unwrap().sessions.retain(|known| known != cookie);
        Ok(())
    }

    async fn session(&self, cookie: &str) -> Result<Option<Principal>, Problem> {
        Ok(self.session_of(cookie))
    }
}

#[async_trait]
impl Recovery for World {
    async fn reset_code(&self) -> Option<Secret<String>> {
        self.memory.lock().unwrap().reset_code.clone().map(Secret::new)
    }

    async fn admin_names(&self) -> Result<Vec<String>, Problem> {
        Ok(self.memory.lock().unwrap().account.iter().map(|(name, _, _)| name.clone()).collect())
    }

    async fn open_reset(&self, _: &str) -> Result<bool, Problem> {
        self.memory.lock().unwrap().reset_code = Some(CLAIM_CODE.to_owned());
        Ok(true)
    }

    async fn reset_password(&self, _: ClientAddr, code: &str, username: &str, password: &Secret<String>) -> Result<NewSession, Problem> {
        self.failing()?;
        {
            let mut memory = self.memory.lock().unwrap();
            let Some(right) = memory.reset_code.clone() else { return Err(Problem::new(ProblemKind::Conflict, "No password reset is open.")) };
            if code != right {
                return Err(Problem::new(ProblemKind::Forbidden, "This is not the reset code.").hint("Look at the screen.").param("reset_code"));
            }
            memory.reset_code = None;
            memory.account = Some((username.to_owned(), password.expose().clone(), Role::Admin));
        }
        Ok(self.begin_session())
    }
}

#[async_trait]
impl Audit for World {
    async fn note(&self, by: &Principal, action: &'static str, subject: Option<String>, outcome: &'static str) -> Result<(), Problem> {
        self.memory.lock().unwrap().deeds.push(format!("{} {action} {} {outcome}", by.username, subject.unwrap_or_default()));
        Ok(())
    }
}

#[async_trait]
impl Machine for World {
    fn offered(&self) -> bool {
        true
    }

    async fn power(&self, power: Power) -> Result<(), Problem> {
        self.failing()?;
        self.memory.lock().unwrap().deeds.push(format!("{power:?}"));
        Ok(())
    }

    async fn request_factory_reset(&self, keep_models: bool) -> Result<String, Problem> {
        self.failing()?;
        self.memory.lock().unwrap().deeds.push(format!("factory keep_models={keep_models}"));
        Ok("00112233445566778899aabbccddeeff".to_owned())
    }

    async fn handed_admin_reset(&self) -> Option<String> {
        None
    }

    async fn confirm_admin_reset(&self, _: &str) -> Result<(), Problem> {
        Ok(())
    }
}

#[async_trait]
impl Keys for World {
    async fn list(&self) -> Result<Vec<Key>, Problem> {
        Ok(self.memory.lock().unwrap().keys.iter().map(|(key, _)| key.clone()).collect())
    }

    async fn create(&self, by: &AccountId, name: &str, priority: Priority) -> Result<NewKey, Problem> {
        self.failing()?;
        if name.is_empty() || name.chars().count() > 64 {
            return Err(Problem::new(ProblemKind::Invalid, "A key needs a name of 1 to 64 characters.").param("name"));
        }
        if self.memory.lock().unwrap().keys.iter().any(|(key, _)| key.name == name) {
            return Err(Problem::new(ProblemKind::Conflict, format!("There is a key named {name:?} already.")).hint("Choose another name."));
        }
        let secret = "vw_Zk3nQ8rT1vXy6bD0fHj2LmPs5uWa9cEgIiKoMqOtRwU".to_owned();
        let key = Key {
            id: KeyId::random(),
            name: name.to_owned(),
            prefix: secret.chars().take(8).collect(),
            priority,
            created_at: clock::now(),
            created_by: by.clone(),
            revoked_at: None,
            last_used_at: None,
            usage: UsageTotals::default(),
        };
        self.edit(|m| m.keys.insert(0, (key.clone(), secret.clone())));
        Ok(NewKey { key, secret: Secret::new(secret) })
    }

    async fn set_priority(&self, _: &AccountId, id: &KeyId, priority: Priority) -> Result<Key, Problem> {
        self.failing()?;
        let mut memory = self.memory.lock().unwrap();
        let (key, _) = memory
            .keys
            .iter_mut()
            .find(|(key, _)| key.id == *id)
            .ok_or_else(|| Problem::new(ProblemKind::NotFound, format!("There is no key {id}.")))?;
        key.priority = priority;
        Ok(key.clone())
    }

    async fn revoke(&self, id: &KeyId) -> Result<Key, Problem> {
        self.failing()?;
        self.edit(|m| {
            let (key, _) = m.keys.iter_mut().find(|(key, _)| key.id == *id).ok_or_else(|| not_found("key", id.as_str()))?;
            key.revoked_at.get_or_insert_with(clock::now);
            Ok(key.clone())
        })
    }
}

impl KeyDirectory for World {
    fn identify(&self, secret: &str) -> Result<Caller, KeyRefusal> {
        let memory = self.memory.lock().unwrap();
        let (key, _) = memory.keys.iter().find(|(_, known)| known == secret).ok_or(KeyRefusal::Unknown)?;
        match key.revoked_at {
            Some(_) => Err(KeyRefusal::Revoked),
            None => Ok(Caller { key: Some(key.id.clone()), name: key.name.clone(), priority: key.priority }),
        }
    }
}
