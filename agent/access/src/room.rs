//! The room itself: what it holds, how it opens, and the holding back of wrong answers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use arc_swap::ArcSwap;
use warden_domain::{Problem, ProblemKind, access::ClientAddr, change::Changes};
use warden_store::{Store, accounts, keys, settings};

use crate::{
    claim::Claim,
    keyring::{Held, snapshot},
    password::Hasher,
    recovery::CODE_SETTING,
    slowdown::{Network, Slowdown},
};

/// Where the claim code lies until somebody used it.
pub(crate) const CLAIM_SETTING: &str = "access.claim";

/// Accounts, sessions and keys. Implements the ports `Accounts`, `Keys` and `KeyDirectory`.
pub struct Access {
    pub(crate) store: Store,
    pub(crate) changes: Changes,
    pub(crate) hasher: Hasher,
    /// The claim in force; `None` once an admin exists.
    pub(crate) claim: Arc<Mutex<Option<Claim>>>,
    /// The code of an open password reset; `None` while none is open.
    pub(crate) reset: Arc<Mutex<Option<Claim>>>,
    pub(crate) slowdown: Mutex<Slowdown>,
    /// What the hot path looks keys up in, by SHA-256 of the secret.
    pub(crate) keyring: Arc<ArcSwap<HashMap<[u8; 32], Held>>>,
    /// One change of keys at a time, so that the snapshot never goes back.
    pub(crate) key_changes: Arc<tokio::sync::Mutex<()>>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Access")
    }
}

impl Access {
    /// Opens the room over the store: reads the keys, and on a box without an admin makes sure there is a claim code (the same one
    /// as before a restart).
    ///
    /// # Errors
    /// What the store says; `DiskFull` when a first claim code cannot be kept.
    pub async fn open(store: Store, changes: Changes) -> Result<Arc<Self>, Problem> {
        let hasher = tokio::task::spawn_blocking(Hasher::new).await.map_err(|_| Problem::internal("Preparing the password check broke off."))??;
        let claim = store
            .write(|tx| {
                if accounts::admin_exists(tx)? {
                    settings::remove(tx, CLAIM_SETTING)?;
                    return Ok(None);
                }
                if let Some(code) = settings::get(tx, CLAIM_SETTING)? {
                    return Ok(Some(Claim::with(code)));
                }
                let claim = Claim::fresh();
                settings::set(tx, CLAIM_SETTING, claim.code().expose())?;
                Ok(Some(claim))
            })
            .await?;
        let reset = store.read(|db| settings::get(db, CODE_SETTING)).await?.map(Claim::with);
        let entries = store.read(keys::entries).await?;
        Ok(Arc::new(Self {
            store,
            changes,
            hasher,
            claim: Arc::new(Mutex::new(claim)),
            reset: Arc::new(Mutex::new(reset)),
            slowdown: Mutex::default(),
            keyring: Arc::new(ArcSwap::from_pointee(snapshot(entries))),
            key_changes: Arc::default(),
        }))
    }

    /// Refuses a try when too many wrong ones of its network are being held back.
    pub(crate) fn admit(&self, from: ClientAddr) -> Result<(), Problem> {
        self.slowdown().admit(from.into(), Instant::now()).map_err(|after| {
            Problem::new(ProblemKind::TooManyRequests, "Too many wrong tries came from your network in a short time.")
                .hint("Wait a few seconds and try again. Nothing is locked.")
                .retry_after(after)
        })
    }

    /// Holds back the answer to a wrong try.
    pub(crate) async fn hold_back(&self, from: ClientAddr) {
        let network = Network::from(from);
        let hold = self.slowdown().failed(network, Instant::now());
        let _held = Waiting { room: self, network };
        tokio::time::sleep(hold).await;
    }

    pub(crate) fn slowdown(&self) -> std::sync::MutexGuard<'_, Slowdown> {
        self.slowdown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frees the place in the waiting room, also when the client left while waiting.
struct Waiting<'a> {
    room: &'a Access,
    network: Network,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.room.slowdown().released(self.network);
    }
}
