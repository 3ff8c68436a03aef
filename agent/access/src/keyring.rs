//! Inference keys: making and revoking them, and the snapshot the hot path looks them up in.
//!
//! A change is written first and then seen by the very next request. It runs as its own task, so that a caller who leaves in the
//! middle cannot leave a revoked key working.

use std::{collections::HashMap, sync::Arc};

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind,
    change::Topic,
    clock,
    ids::{AccountId, KeyId},
    key::{Caller, Key, KeyDirectory, KeyRefusal, Keys, NewKey, Priority},
    usage::UsageTotals,
};
use warden_store::{
    StoreError,
    audit::{self, AuditRow},
    keys::{self, KeyEntry},
};

use crate::{Access, token};

/// Longest name of a key, in characters.
const NAME_CHARS: usize = 64;
/// Characters of the secret that are kept to recognise it by.
const PREFIX: usize = 8;

/// One key in the snapshot.
pub(crate) struct Held {
    id: KeyId,
    name: String,
    revoked: bool,
    priority: Priority,
}

/// The snapshot of all keys.
pub(crate) fn snapshot(entries: Vec<KeyEntry>) -> HashMap<[u8; 32], Held> {
    entries.into_iter().map(|e| (e.secret_hash, Held { id: e.id, name: e.name, revoked: e.revoked, priority: e.priority })).collect()
}

impl KeyDirectory for Access {
    fn identify(&self, secret: &str) -> Result<Caller, KeyRefusal> {
        if !token::looks_like_key(secret) {
            return Err(KeyRefusal::Malformed);
        }
        let keyring = self.keyring.load();
        match keyring.get(&token::digest(secret)) {
            None => Err(KeyRefusal::Unknown),
            Some(held) if held.revoked => Err(KeyRefusal::Revoked),
            Some(held) => Ok(Caller { key: Some(held.id.clone()), name: held.name.clone(), priority: held.priority }),
        }
    }
}

#[async_trait]
impl Keys for Access {
    async fn list(&self) -> Result<Vec<Key>, Problem> {
        Ok(self.store.read(keys::all).await?)
    }

    async fn create(&self, by: &AccountId, name: &str, priority: Priority) -> Result<NewKey, Problem> {
        let name = checked_name(name)?;
        let secret = token::random_key();
        let key = Key {
            id: KeyId::random(),
            name: name.clone(),
            prefix: secret.expose().chars().take(PREFIX).collect(),
            priority,
            created_at: clock::now(),
            created_by: by.clone(),
            revoked_at: None,
            last_used_at: None,
            usage: UsageTotals::default(),
        };
        let (row, hash) = (key.clone(), token::digest(secret.expose()));
        self.change(move |tx| {
            keys::insert(tx, &row, &hash).map_err(|error| if error.is_taken() { name_taken(&name).into() } else { error })?;
            audit::insert(tx, &audited("key.create", &row.created_by, &row.id))
        })
        .await?;
        Ok(NewKey { key, secret })
    }

    async fn set_priority(&self, by: &AccountId, id: &KeyId, priority: Priority) -> Result<Key, Problem> {
        let (by, id) = (by.clone(), id.clone());
        self.change(move |tx| {
            if !keys::set_priority(tx, &id, priority)? {
                return Err(missing(&id));
            }
            audit::insert(tx, &audited("key.priority", &by, &id))?;
            keys::get(tx, &id)?.ok_or_else(|| missing(&id))
        })
        .await
    }

    async fn revoke(&self, id: &KeyId) -> Result<Key, Problem> {
        let id = id.clone();
        self.change(move |tx| {
            let missing = || missing(&id);
            if !keys::revoke(tx, &id, clock::now())? {
                return Err(missing());
            }
            let key = keys::get(tx, &id)?.ok_or_else(missing)?;
            audit::insert(tx, &AuditRow { account: None, ..audited("key.revoke", &key.created_by, &id) })?;
            Ok(key)
        })
        .await
    }
}

impl Access {
    /// Writes a change of keys and swaps the snapshot, whether or not the caller waits for it.
    async fn change<T: Send + 'static>(
        &self,
        f: impl FnOnce(&warden_store::rusqlite::Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Problem> {
        let (store, keyring, turns, changes) = (self.store.clone(), Arc::clone(&self.keyring), Arc::clone(&self.key_changes), self.changes.clone());
        let task = tokio::spawn(async move {
            let _turn = turns.lock().await;
            let (value, entries) = store
                .write(move |tx| {
                    let value = f(tx)?;
                    Ok((value, keys::entries(tx)?))
                })
                .await?;
            keyring.store(Arc::new(snapshot(entries)));
            changes.publish(Topic::Keys);
            Ok(value)
        });
        task.await.unwrap_or_else(|_| Err(Problem::internal("Changing the keys broke off.")))
    }
}

fn missing(id: &KeyId) -> StoreError {
    Problem::new(ProblemKind::NotFound, format!("There is no key {id}.")).into()
}

fn audited(action: &'static str, by: &AccountId, key: &KeyId) -> AuditRow {
    AuditRow { at: clock::now(), account: Some(by.clone()), action, subject: Some(key.as_str().to_owned()), outcome: "ok" }
}

fn checked_name(name: &str) -> Result<String, Problem> {
    let name = name.trim();
    let said = |message: &str| Err(Problem::new(ProblemKind::Invalid, message).param("name"));
    if name.is_empty() {
        return said("The key needs a name, such as the app or person that will use it.");
    }
    if name.chars().count() > NAME_CHARS {
        return said("The name of the key is too long: at most 64 characters are allowed.");
    }
    if name.chars().any(char::is_control) {
        return said("The name of the key must not have line breaks or other control characters.");
    }
    Ok(name.to_owned())
}

fn name_taken(name: &str) -> Problem {
    Problem::new(ProblemKind::Conflict, format!("A key named {name:?} is in use."))
        .hint("Choose another name, or revoke that key first.")
        .param("name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_shown_is_refused_with_a_sentence() {
        assert_eq!(checked_name("  laptop  ").unwrap(), "laptop");
        assert_eq!(checked_name(&"ü".repeat(64)).unwrap().chars().count(), 64);
        for bad in ["", "   ", "a\nb", "a\u{1b}[31m", &"a".repeat(65)] {
            assert_eq!(checked_name(bad).unwrap_err().kind, ProblemKind::Invalid, "{bad:?}");
        }
    }
}
