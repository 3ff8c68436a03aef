//! Settings that the installer left for the first start: read once, applied, removed.
//!
//! In: `seed.toml` in the state folder. Out: an administrator, the wanted host name. A seed that cannot be used is said in the log and put aside, so that the box
//! still comes up and can be claimed with the code on its screen.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use warden_access::Access;
use warden_store::{Store, settings};

const FILE: &str = "seed.toml";
/// The store's name for the wanted host name, as the room of names reads it when it starts.
const HOSTNAME: &str = "names.hostname";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seed {
    hostname: Option<String>,
    admin: Option<Admin>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Admin {
    username: String,
    password_hash: String,
}

/// Applies the seed of the state folder, if there is one. Comes before the rooms that read what it sets.
pub async fn apply(state: &Path, store: &Store, access: &Access) {
    let path = state.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => {
            tracing::error!(%error, "the settings the installer left cannot be read; set the box up by hand");
            return;
        }
    };
    match use_it(&text, store, access).await {
        Ok(()) => put_away(&path),
        Err(sentence) => {
            tracing::error!(%sentence, "the settings the installer left cannot be used; set the box up by hand");
            put_away(&path);
        }
    }
}

async fn use_it(text: &str, store: &Store, access: &Access) -> Result<(), String> {
    // The reader's own message would quote the file, and with it the hash.
    let seed: Seed = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    if let Some(hostname) = seed.hostname {
        store.write(move |tx| settings::set(tx, HOSTNAME, &hostname)).await.map_err(|error| error.to_string())?;
    }
    if let Some(admin) = seed.admin {
        let made = access.seed_admin(&admin.username, &admin.password_hash).await.map_err(|problem| problem.full_text())?;
        tracing::info!(made, "the installer's administrator");
    }
    Ok(())
}

/// It was for the first start only, and it holds a hash.
fn put_away(path: &PathBuf) {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let removed = std::fs::remove_file(path).and_then(|()| warden_durable::sync_folder(folder));
    if let Err(error) = removed {
        tracing::error!(%error, "the settings the installer left cannot be removed");
    }
}

#[cfg(test)]
mod tests {
    use warden_domain::{access::Accounts, change::Changes};
    use warden_store::Store;

    use super::*;

    #[tokio::test]
    async fn a_seed_is_used_once_and_a_broken_one_leaves_the_box_to_be_claimed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let access = Access::open(store.clone(), Changes::new()).await.unwrap();
        apply(dir.path(), &store, &access).await;
        for bad in ["admin = 1", "[admin]\nusername = 'ops'\npassword_hash = 'x'\n", "[else]\n"] {
            std::fs::write(dir.path().join(FILE), bad).unwrap();
            apply(dir.path(), &store, &access).await;
            assert!(!dir.path().join(FILE).exists());
            assert!(access.claim_code().await.unwrap().is_some());
        }
        let hash = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAI";
        std::fs::write(dir.path().join(FILE), format!("hostname = 'box'\n[admin]\nusername = 'ops'\npassword_hash = '{hash}'\n")).unwrap();
        apply(dir.path(), &store, &access).await;
        assert_eq!(store.read(|db| settings::get(db, HOSTNAME)).await.unwrap().as_deref(), Some("box"));
        assert!(access.claim_code().await.unwrap().is_none() && !dir.path().join(FILE).exists());
    }
}
