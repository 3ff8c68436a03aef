//! The room itself: opens authority and certificate, watches names and addresses, keeps the admin's decision, answers for both.

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use rustls::{ServerConfig, crypto::ring::default_provider};
use tokio::task::AbortHandle;
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    clock,
    front::{Certificates, Front, FrontConfig, FrontState, PlainDoor, PlainPort},
    ids::AccountId,
};
use warden_store::{
    Store,
    audit::{self, AuditRow},
    settings,
};

use crate::{
    Reason, Wanted,
    authority::Authority,
    keep::{self, Kept},
    leaf::{self, Leaf, Shown},
    names::{MOST_NAMES, own_names, valid_name},
    needs_reissue,
    pace::Pace,
    resolver::Newest,
};

/// Where the admin's decision lies.
const SETTING: &str = "front";
/// How often names and addresses are looked at; one look is a system call or two.
const LOOK: Duration = Duration::from_secs(2);
/// After a failure the plain port is tried again this much later.
const AGAIN: Duration = Duration::from_secs(30);

/// What the room asks for again and again.
pub struct Found {
    /// The host name of this moment.
    pub host: Box<dyn Fn() -> String + Send + Sync>,
    /// The addresses of this moment that others can use.
    pub addresses: Box<dyn Fn() -> Vec<IpAddr> + Send + Sync>,
}

/// The parts of the room.
struct Encryption {
    folder: PathBuf,
    authority: Authority,
    shown: Arc<ArcSwap<Shown>>,
}

/// The front door. Implements the port `Front`.
pub struct FrontRoom {
    store: Store,
    changes: Changes,
    found: Found,
    given: Vec<String>,
    config: ArcSwap<FrontConfig>,
    encryption: Option<Encryption>,
    door: Option<Arc<dyn PlainDoor>>,
    plain: Mutex<PlainPort>,
    plain_failed: Mutex<Option<Instant>>,
    pace: Mutex<Pace>,
    /// One change at a time, of the decision or of the certificate.
    turn: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for FrontRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FrontRoom")
    }
}

impl FrontRoom {
    /// Opens the room. With a folder it reads or makes the authority and the certificate; without one there is no encryption. `given`
    /// are names from the configuration file; `door` is the plain port, where one can be opened and closed.
    ///
    /// # Errors
    /// The folder is not writable, no random numbers, or what the store says.
    pub async fn open(
        store: Store,
        changes: Changes,
        found: Found,
        given: Vec<String>,
        folder: Option<PathBuf>,
        door: Option<Arc<dyn PlainDoor>>,
    ) -> Result<Arc<Self>, Problem> {
        let kept = store.read(|db| settings::get(db, SETTING)).await?;
        let config: FrontConfig = kept.map_or_else(FrontConfig::default, |text| {
            serde_json::from_str(&text).unwrap_or_else(|error| {
                tracing::error!(%error, "the settings of the front door cannot be read; its defaults are used");
                FrontConfig::default()
            })
        });
        let wanted = wanted(&found, &given, &config);
        let host = (found.host)();
        let encryption = match folder {
            None => None,
            Some(folder) => Some(blocking(move || Encryption::open(folder, &host, &wanted)).await?),
        };
        let plain = Mutex::new(if door.is_some() { PlainPort::Closed } else { PlainPort::Only });
        let config = ArcSwap::from_pointee(config);
        Ok(Arc::new(Self {
            store,
            changes,
            found,
            given,
            config,
            encryption,
            door,
            plain,
            plain_failed: Mutex::new(None),
            pace: Mutex::new(Pace::new(Instant::now())),
            turn: tokio::sync::Mutex::new(()),
        }))
    }

    /// Looks after port and certificate from now on, until the handle is aborted. The plain port opens in a moment if that was decided.
    #[must_use]
    pub fn watch(self: &Arc<Self>) -> AbortHandle {
        let room = Arc::clone(self);
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(LOOK);
            tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                if let Err(problem) = room.look().await {
                    tracing::error!("the certificate cannot be renewed: {}", problem.full_text());
                }
                let _shown_as_a_state = room.settle_plain(false).await;
            }
        })
        .abort_handle()
    }

    /// Looks at names, addresses and clock once, and makes a new certificate when one is due. Returns why it did.
    ///
    /// # Errors
    /// It could not be made; the old one stays in use.
    pub async fn look(&self) -> Result<Option<Reason>, Problem> {
        let Some(encryption) = &self.encryption else { return Ok(None) };
        let wanted = wanted(&self.found, &self.given, &self.config.load());
        let now = clock::now();
        let Some(reason) = needs_reissue(Some(&encryption.shown.load().facts), &wanted, &encryption.authority.fingerprint, now) else {
            return Ok(None);
        };
        if reason == Reason::Addresses && !lock(&self.pace).take(Instant::now()) {
            return Ok(None);
        }
        let _turn = self.turn.lock().await;
        let leaf = encryption.authority.issue(&wanted, now)?;
        let shown = leaf.show()?;
        let path = encryption.folder.join(leaf::FILE);
        if let Err(problem) = blocking(move || keep::write(&path, &leaf::Record::from(&leaf))).await {
            // It is better to be reachable by a certificate that lasts until the next start than not at all.
            tracing::error!("the new certificate is used but could not be kept: {}", problem.full_text());
        }
        tracing::info!(?reason, names = ?shown.facts.names, addresses = ?shown.facts.addresses, "made a new certificate");
        encryption.shown.store(Arc::new(shown));
        self.changes.publish(Topic::Front);
        Ok(Some(reason))
    }

    /// Brings the plain port to what was decided, if it is not there. A failure is tried again after a while, or `now`.
    async fn settle_plain(&self, now: bool) -> Result<(), Problem> {
        let Some(door) = &self.door else { return Ok(()) };
        let _turn = self.turn.lock().await;
        let open = self.config.load().plain_http;
        let rests = |since: &Instant| !now && since.elapsed() < AGAIN;
        if self.plain() == (if open { PlainPort::Open } else { PlainPort::Closed }) || lock(&self.plain_failed).as_ref().is_some_and(rests) {
            return Ok(());
        }
        let done = if open { door.open().await } else { door.close().await };
        let (state, failed) = match &done {
            Ok(()) if open => (PlainPort::Open, None),
            Ok(()) => (PlainPort::Closed, None),
            Err(problem) => (PlainPort::Failed(problem.full_text()), Some(Instant::now())),
        };
        *lock(&self.plain) = state;
        *lock(&self.plain_failed) = failed;
        self.changes.publish(Topic::Front);
        done
    }

    fn plain(&self) -> PlainPort {
        lock(&self.plain).clone()
    }
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Encryption {
    fn open(folder: PathBuf, host: &str, wanted: &Wanted) -> Result<Self, Problem> {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|cause| Problem::from_io(&format!("making the folder {}", folder.display()), &cause))?;
        let now = clock::now();
        let authority = Authority::open(&folder, host, now)?;
        let path = folder.join(leaf::FILE);
        let kept = match keep::read::<leaf::Record>(&path)? {
            Kept::Read(record) => Leaf::from(record).show().ok(),
            Kept::Nothing => None,
        };
        let shown = match kept {
            Some(shown) if needs_reissue(Some(&shown.facts), wanted, &authority.fingerprint, now).is_none() => shown,
            _ => {
                let leaf = authority.issue(wanted, now)?;
                if let Err(problem) = keep::write(&path, &leaf::Record::from(&leaf)) {
                    // A full disk must not keep the agent from starting: it is what somebody frees it with.
                    tracing::error!("the new certificate is used but could not be kept: {}", problem.full_text());
                }
                leaf.show()?
            }
        };
        Ok(Self { folder, authority, shown: Arc::new(ArcSwap::from_pointee(shown)) })
    }
}

#[async_trait]
impl Front for FrontRoom {
    fn config(&self) -> FrontConfig {
        FrontConfig::clone(&self.config.load())
    }

    fn state(&self) -> FrontState {
        let certificates = self.encryption.as_ref().map(|encryption| {
            let shown = encryption.shown.load();
            Certificates {
                authority_pem: encryption.authority.pem.clone(),
                authority_der: encryption.authority.der.clone(),
                authority_fingerprint: encryption.authority.fingerprint.clone(),
                leaf_fingerprint: shown.fingerprint.clone(),
                names: shown.facts.names.iter().cloned().collect(),
                addresses: shown.facts.addresses.iter().copied().collect(),
                issued_at: shown.facts.issued_at,
                valid_until: shown.facts.not_after,
            }
        });
        let names = own_names(&(self.found.host)(), all_given(&self.given, &self.config.load())).into_iter().collect();
        FrontState { certificates, names, plain: self.plain() }
    }

    fn is_own_name(&self, name: &str) -> bool {
        own_names(&(self.found.host)(), all_given(&self.given, &self.config.load())).contains(&name.to_ascii_lowercase())
    }

    async fn configure(&self, by: &AccountId, config: FrontConfig) -> Result<(), Problem> {
        let config = checked(config)?;
        {
            let _turn = self.turn.lock().await;
            let text = serde_json::to_string(&config).map_err(|cause| Problem::internal(format!("The settings cannot be written: {cause}.")))?;
            let row = AuditRow { at: clock::now(), account: Some(by.clone()), action: "front.configure", subject: Some(text.clone()), outcome: "ok" };
            self.store
                .write(move |tx| {
                    settings::set(tx, SETTING, &text)?;
                    audit::insert(tx, &row)
                })
                .await?;
            self.config.store(Arc::new(config));
        }
        self.changes.publish(Topic::Front);
        // Whoever asked may be gone by now; the watch brings both about all the same.
        self.look().await?;
        self.settle_plain(true).await
    }
}

/// A configuration for TLS servers: HTTP/2 and 1.1, TLS 1.2 and 1.3, no client certificates. `None` where there is no encryption.
///
/// # Errors
/// The TLS library refuses its own defaults.
pub fn server_config(room: &FrontRoom) -> Result<Option<Arc<ServerConfig>>, Problem> {
    let Some(encryption) = &room.encryption else { return Ok(None) };
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| Problem::internal(format!("TLS cannot be set up: {cause}.")))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Newest(Arc::clone(&encryption.shown))));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

fn all_given<'a>(given: &'a [String], config: &'a FrontConfig) -> impl Iterator<Item = &'a str> {
    given.iter().chain(&config.names).map(String::as_str)
}

fn wanted(found: &Found, given: &[String], config: &FrontConfig) -> Wanted {
    Wanted::new(&(found.host)(), all_given(given, config), &(found.addresses)())
}

/// The decision in its kept form, or what is wrong with it.
fn checked(config: FrontConfig) -> Result<FrontConfig, Problem> {
    let invalid = |message: String| Problem::new(ProblemKind::Invalid, message).param("names");
    let mut names: Vec<String> = Vec::new();
    for name in config.names {
        let name = name.trim().trim_end_matches('.').to_ascii_lowercase();
        if name.is_empty() {
            continue;
        }
        if !valid_name(&name) {
            let shown: String = name.chars().take(100).collect();
            return Err(invalid(format!("{shown:?} is not a DNS name.")).hint(
                "Give names such as llm.example.org: letters, digits, dashes and dots, without scheme, port or path. Addresses need no entry.",
            ));
        }
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > MOST_NAMES {
        return Err(invalid(format!("{} names are too many; at most {MOST_NAMES} can be kept.", names.len())).hint("Leave out names nobody uses."));
    }
    Ok(FrontConfig { names, plain_http: config.plain_http })
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Problem::internal("Work on the certificates broke off."))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once_in_lower_case_and_a_url_is_refused_with_a_way_out() {
        let given = |names: &[&str]| FrontConfig { names: names.iter().map(|n| (*n).to_owned()).collect(), plain_http: true };
        assert_eq!(checked(given(&["LLM.example.", " llm.example", ""])).unwrap(), given(&["llm.example"]));
        let problem = checked(given(&["https://llm.example/"])).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Invalid);
        assert!(problem.full_text().contains("without scheme"), "{}", problem.full_text());
        let many: Vec<String> = (0..40).map(|n| format!("n{n}.example")).collect();
        assert!(checked(FrontConfig { names: many, plain_http: false }).is_err());
    }
}
