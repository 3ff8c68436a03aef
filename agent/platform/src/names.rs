//! The name of the box over hostnamed. The root is read-only, so the system cannot keep a name: the agent does, and gives it to the
//! system at each start.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::StreamExt;
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    clock,
    ids::AccountId,
    names::{NameDocument, Names, check},
};
use warden_store::{
    Store,
    audit::{self, AuditRow},
    settings,
};
use zbus::{fdo::PropertiesProxy, proxy};

use crate::bus::{Bus, said};

/// The store's name for the wanted name.
const WANTED: &str = "names.hostname";
const SERVICE: &str = "hostnamed";
const RETRY: Duration = Duration::from_secs(3);

const NAME: &str = "org.freedesktop.hostname1";
const PATH: &str = "/org/freedesktop/hostname1";

#[proxy(interface = "org.freedesktop.hostname1", default_service = "org.freedesktop.hostname1", default_path = "/org/freedesktop/hostname1")]
trait Hostname {
    fn set_hostname(&self, hostname: &str, interactive: bool) -> zbus::Result<()>;
    #[zbus(property(emits_changed_signal = "false"))]
    fn hostname(&self) -> zbus::Result<String>;
}

/// The room.
pub struct NamesRoom {
    bus: Arc<Bus>,
    store: Store,
    changes: Changes,
    /// The name as last seen.
    present: Mutex<String>,
    /// One name is given and stored at a time: of two admins at once the system and the store must follow the same one.
    turn: tokio::sync::Mutex<()>,
}

impl NamesRoom {
    /// Opens the room and applies the stored name. `first` is what the agent calls the box until the system was asked. Must be called
    /// inside a tokio runtime.
    #[must_use]
    pub fn start(bus: Arc<Bus>, store: Store, changes: Changes, first: String) -> Arc<Self> {
        let room = Arc::new(Self { bus, store, changes, present: Mutex::new(first), turn: tokio::sync::Mutex::new(()) });
        let applying = room.clone();
        tokio::spawn(async move {
            // A machine without hostnamed (a development machine) is left alone after some tries.
            for _ in 0..20 {
                match applying.apply().await {
                    Ok(()) => return applying.follow().await,
                    Err(problem) => tracing::debug!(%problem, "the name is not applied yet"),
                }
                tokio::time::sleep(RETRY).await;
            }
            tracing::warn!("the name of the box could not be applied: hostnamed does not answer");
        });
        room
    }

    async fn proxy(&self) -> Result<HostnameProxy<'static>, Problem> {
        HostnameProxy::new(&self.bus.get().await?).await.map_err(|e| said(SERVICE, "be reached", &e))
    }

    async fn wanted(&self) -> Result<Option<String>, Problem> {
        Ok(self.store.read(|db| settings::get(db, WANTED)).await?)
    }

    async fn apply(&self) -> Result<(), Problem> {
        let _turn = self.turn.lock().await;
        if let Some(name) = self.wanted().await? {
            self.give(&name).await?;
        }
        self.ask().await.map(drop)
    }

    /// Notices names that somebody else gave. The kernel's answer is no help: the agent's unit keeps the name of its start.
    async fn follow(&self) {
        loop {
            if let Err(problem) = self.listen().await {
                tracing::debug!(%problem, "news of the box's name cannot be heard");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Until the bus goes away.
    async fn listen(&self) -> Result<(), Problem> {
        let bus = self.bus.get().await?;
        let heard = async {
            let properties = PropertiesProxy::builder(&bus).destination(NAME).path(PATH).build().await?;
            properties.receive_properties_changed().await
        };
        let mut news = heard.await.map_err(|e: zbus::Error| said(SERVICE, "tell of a new name", &e))?;
        // What changed before the ear was there.
        self.ask().await?;
        while news.next().await.is_some() {
            self.ask().await?;
        }
        Ok(())
    }

    async fn give(&self, name: &str) -> Result<(), Problem> {
        self.proxy().await?.set_hostname(name, false).await.map_err(|e| said(SERVICE, "change the name of the box", &e))
    }

    async fn ask(&self) -> Result<String, Problem> {
        let name = self.proxy().await?.hostname().await.map_err(|e| said(SERVICE, "tell the name of the box", &e))?;
        let mut present = self.present.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *present != name {
            present.clone_from(&name);
            self.changes.publish(Topic::Network);
        }
        Ok(name)
    }
}

#[async_trait]
impl Names for NamesRoom {
    async fn document(&self) -> NameDocument {
        let wanted = self.wanted().await.ok().flatten();
        match self.ask().await {
            Ok(name) => NameDocument { wanted, present: Some(name), unavailable: None },
            Err(problem) => NameDocument { wanted, present: None, unavailable: Some(problem.full_text()) },
        }
    }

    fn present(&self) -> String {
        self.present.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    async fn set(&self, name: Option<String>, account: &AccountId) -> Result<NameDocument, Problem> {
        if let Some(name) = &name {
            check(name).map_err(|why| {
                Problem::new(ProblemKind::Invalid, format!("{name:?} cannot be the name of a box: {why}."))
                    .hint("Use letters, digits and dashes, such as warden-1.")
                    .param("hostname")
            })?;
        }
        let _turn = self.turn.lock().await;
        let before = self.wanted().await?;
        // An empty name makes hostnamed fall back to the image's own. It is given first: what cannot be used is not stored.
        self.give(name.as_deref().unwrap_or_default()).await?;
        let (stored, account) = (name.clone(), account.clone());
        let kept = self.store.write(move |tx| {
            match &stored {
                Some(name) => settings::set(tx, WANTED, name)?,
                None => settings::remove(tx, WANTED)?,
            }
            let row = AuditRow { at: clock::now(), account: Some(account.clone()), action: "names.set", subject: stored.clone(), outcome: "ok" };
            audit::insert(tx, &row)
        });
        if let Err(error) = kept.await {
            // A name that a restart would take back again is not one to go by.
            if let Err(problem) = self.give(before.as_deref().unwrap_or_default()).await {
                tracing::warn!(%problem, "the name that could not be kept is in use until the next start");
            }
            return Err(error.into());
        }
        self.changes.publish(Topic::Network);
        Ok(self.document().await)
    }
}
