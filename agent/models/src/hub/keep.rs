//! What is kept about the hub: its address and the limit in the settings, the token in a file of its own that only the agent can read.
//!
//! A token is kept together with the origin it was given for. Another address does not get it: it has to be given anew.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use http::Uri;
use serde::{Deserialize, Serialize};
use warden_domain::{
    Problem, ProblemKind, Secret,
    hub::{HubChange, HubSettings},
    units::Bytes,
};
use warden_store::{Store, settings};

use super::{address, client::origin_of};
use crate::registry::blocking;

const SETTING: &str = "hub.settings";
const TOKEN_FILE: &str = "hub-token";
const LONGEST_TOKEN: usize = 500;
const SLOWEST: u64 = 16 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    #[serde(default)]
    endpoint: Option<String>,
    #[serde(default)]
    limit: Option<Bytes>,
}

#[derive(Serialize, Deserialize)]
struct KeptToken {
    origin: String,
    token: String,
}

/// What the hub is reached with at this moment.
#[derive(Clone, Debug)]
pub(crate) struct Reaching {
    pub(crate) endpoint: String,
    pub(crate) token: Option<Secret<String>>,
    pub(crate) limit: Option<Bytes>,
}

/// Settings and token.
pub(crate) struct Keep {
    store: Store,
    token_file: PathBuf,
    /// The address of the configuration file, when the settings name none.
    usual: String,
    now: Mutex<Arc<Reaching>>,
    turn: tokio::sync::Mutex<()>,
}

impl Keep {
    /// Reads what is kept.
    pub(crate) async fn open(store: Store, state_dir: &Path, usual: Option<&str>) -> Result<Self, Problem> {
        let usual = address::endpoint(usual.unwrap_or_default())?;
        let token_file = state_dir.join(TOKEN_FILE);
        let empty = Reaching { endpoint: usual.clone(), token: None, limit: None };
        let keep = Self { store, token_file, usual, now: Mutex::new(Arc::new(empty)), turn: tokio::sync::Mutex::default() };
        keep.refresh(&keep.kept().await?).await;
        Ok(keep)
    }

    /// As of now.
    pub(crate) fn now(&self) -> Arc<Reaching> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Without the secret.
    pub(crate) fn settings(&self) -> HubSettings {
        let now = self.now();
        HubSettings { endpoint: now.endpoint.clone(), has_token: now.token.is_some(), limit: now.limit }
    }

    async fn kept(&self) -> Result<Kept, Problem> {
        let text = self.store.read(|db| settings::get(db, SETTING)).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    async fn refresh(&self, kept: &Kept) {
        let endpoint = kept.endpoint.clone().unwrap_or_else(|| self.usual.clone());
        let (file, wanted) = (self.token_file.clone(), origin(&endpoint));
        let token = tokio::task::spawn_blocking(move || read_token(&file, &wanted)).await.ok().flatten();
        let reaching = Reaching { endpoint, token, limit: kept.limit };
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(reaching);
    }

    /// Changes settings and token.
    pub(crate) async fn change(&self, change: HubChange) -> Result<HubSettings, Problem> {
        let _turn = self.turn.lock().await;
        let mut kept = self.kept().await?;
        if let Some(text) = &change.endpoint {
            let endpoint = address::endpoint(text)?;
            kept.endpoint = (!text.trim().is_empty() && endpoint != self.usual).then_some(endpoint);
        }
        if let Some(limit) = change.limit {
            if limit.is_some_and(|limit| limit.0 < SLOWEST) {
                return Err(Problem::new(ProblemKind::Invalid, format!("A limit below {} a second would not end.", Bytes(SLOWEST)))
                    .hint("Leave it empty for no limit.")
                    .param("limit_bytes_per_second"));
            }
            kept.limit = limit;
        }
        if let Some(token) = &change.token {
            check_token(token)?;
        }
        if let Some(token) = change.token {
            let (file, origin) = (self.token_file.clone(), origin(kept.endpoint.as_deref().unwrap_or(&self.usual)));
            blocking(move || write_token(&file, origin, &token)).await?;
        }
        let text = serde_json::to_string(&kept).map_err(|_| Problem::internal("The hub's settings cannot be written."))?;
        self.store.write(move |tx| settings::set(tx, SETTING, &text)).await?;
        self.refresh(&kept).await;
        Ok(self.settings())
    }
}

fn origin(endpoint: &str) -> String {
    endpoint.parse::<Uri>().map_or_else(
        |_| String::new(),
        |uri| {
            let (scheme, host, port) = origin_of(&uri);
            format!("{scheme}://{host}:{port}")
        },
    )
}

fn check_token(token: &Secret<String>) -> Result<(), Problem> {
    let text = token.expose().trim();
    if text.len() <= LONGEST_TOKEN && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    Err(Problem::new(ProblemKind::Invalid, "That is no access token.")
        .hint("Copy it from the hub's page of tokens; it has no spaces.")
        .param("token"))
}

fn read_token(file: &Path, origin: &str) -> Option<Secret<String>> {
    let kept: KeptToken = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    (kept.origin == origin).then(|| Secret::new(kept.token))
}

fn write_token(file: &Path, origin: String, token: &Secret<String>) -> Result<(), Problem> {
    let said = |cause: std::io::Error| Problem::from_io("keeping the access token", &cause);
    let token = token.expose().trim().to_owned();
    if token.is_empty() {
        return match fs::remove_file(file) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => Err(said(cause)),
            _ => Ok(()),
        };
    }
    let text = serde_json::to_vec(&KeptToken { origin, token }).map_err(|_| Problem::internal("The access token cannot be written."))?;
    warden_durable::write_with_mode(file, &text, 0o600).map_err(said)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    async fn open(dir: &Path) -> Keep {
        Keep::open(Store::open(dir).unwrap(), dir, None).await.unwrap()
    }

    fn token(text: &str) -> HubChange {
        HubChange { token: Some(Secret::new(text.to_owned())), ..HubChange::default() }
    }

    #[tokio::test]
    async fn a_token_is_kept_for_the_agent_alone_and_for_one_address_alone() {
        let dir = tempfile::tempdir().unwrap();
        let keep = open(dir.path()).await;
        assert!(keep.change(token("hf_sentinel")).await.unwrap().has_token);
        let mode = fs::metadata(dir.path().join(TOKEN_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let elsewhere = HubChange { endpoint: Some("http://mirror.lan:8080".to_owned()), ..HubChange::default() };
        let settings = keep.change(elsewhere).await.unwrap();
        assert_eq!((settings.endpoint.as_str(), settings.has_token), ("http://mirror.lan:8080", false));
        assert!(!format!("{:?}", keep.now()).contains("sentinel"));
        let back = HubChange { endpoint: Some(String::new()), ..HubChange::default() };
        assert!(keep.change(back).await.unwrap().has_token);
        assert!(!keep.change(token("")).await.unwrap().has_token);
        assert!(!dir.path().join(TOKEN_FILE).exists());
    }

    #[tokio::test]
    async fn settings_outlive_the_agent_and_bad_ones_change_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let keep = open(dir.path()).await;
        keep.change(HubChange { limit: Some(Some(Bytes(1 << 20))), ..HubChange::default() }).await.unwrap();
        for bad in [
            HubChange { limit: Some(Some(Bytes(1))), ..HubChange::default() },
            HubChange { endpoint: Some("ftp://x".to_owned()), ..HubChange::default() },
            token("two words"),
        ] {
            assert_eq!(keep.change(bad).await.unwrap_err().kind, ProblemKind::Invalid);
        }
        assert_eq!(keep.settings().limit, Some(Bytes(1 << 20)));
        let again = Keep::open(keep.store.clone(), dir.path(), None).await.unwrap();
        assert_eq!(again.settings(), keep.settings());
    }
}
