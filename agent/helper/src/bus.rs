//! The typed service `org.lmwarden.Helper1`. Who may call is the bus policy's matter; what a call may say is `verb`'s. The service goes
//! away when nobody has called for a while, and the bus starts it again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zbus::Connection;

use crate::places::Places;
use crate::reset::record::is_id;
use crate::reset::scope::{Asker, Scope, allow};
use crate::rollback;
use crate::verb::{Activation, Refusal};

/// Name on the system bus.
pub const NAME: &str = "org.lmwarden.Helper1";
/// Path of the only object.
pub const PATH: &str = "/org/lmwarden/Helper1";

/// What a refused call gets: the error's name is the kind, its message a sentence.
#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.lmwarden.Helper1.Error")]
pub enum Error {
    /// The bus itself failed.
    #[zbus(error)]
    ZBus(zbus::Error),
    /// See [`Refusal::BadReplica`].
    BadReplica(String),
    /// See [`Refusal::BadDigest`].
    BadDigest(String),
    /// See [`Refusal::NoSuchPack`].
    NoSuchPack(String),
    /// See [`Refusal::Revoked`].
    Revoked(String),
    /// See [`Refusal::BadGpu`].
    BadGpu(String),
    /// See [`Refusal::BadScope`].
    BadScope(String),
    /// See [`Refusal::BadReset`].
    BadReset(String),
    /// See [`Refusal::NotYours`].
    NotYours(String),
    /// See [`Refusal::ScreenOnly`].
    ScreenOnly(String),
    /// See [`Refusal::NoResets`].
    NoResets(String),
    /// See [`Refusal::Installing`].
    Installing(String),
    /// See [`Refusal::NoOtherSystem`].
    NoOtherSystem(String),
    /// See [`Refusal::NothingGoodLeft`].
    NothingGoodLeft(String),
    /// See [`Refusal::Io`].
    Io(String),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let sentence = refusal.to_string();
        match refusal {
            Refusal::BadReplica(_) => Self::BadReplica(sentence),
            Refusal::BadDigest(_) => Self::BadDigest(sentence),
            Refusal::NoSuchPack(_) => Self::NoSuchPack(sentence),
            Refusal::Revoked(_) => Self::Revoked(sentence),
            Refusal::BadGpu(_) => Self::BadGpu(sentence),
            Refusal::BadScope(_) => Self::BadScope(sentence),
            Refusal::BadReset(_) => Self::BadReset(sentence),
            Refusal::NotYours(_) => Self::NotYours(sentence),
            Refusal::ScreenOnly(_) => Self::ScreenOnly(sentence),
            Refusal::NoResets => Self::NoResets(sentence),
            Refusal::Installing => Self::Installing(sentence),
            Refusal::NoOtherSystem => Self::NoOtherSystem(sentence),
            Refusal::NothingGoodLeft => Self::NothingGoodLeft(sentence),
            Refusal::Io(_) => Self::Io(sentence),
        }
    }
}

/// The one object of the service.
#[derive(Debug)]
pub struct Helper {
    places: Places,
    calls: std::sync::Arc<AtomicU64>,
    one_at_a_time: Mutex<()>,
}

#[zbus::interface(name = "org.lmwarden.Helper1")]
impl Helper {
    /// Points a replica's unit at an engine pack and sets its memory limit in bytes (0: none) and GPUs.
    async fn activate_pack(
        &self,
        #[zbus(connection)] bus: &Connection,
        replica: &str,
        digest: &str,
        gpus: Vec<String>,
        memory_max: u64,
    ) -> Result<(), Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let wish = Activation::check(replica, digest, &gpus, memory_max)?;
        let changed = {
            let _turn = self.one_at_a_time.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            self.places.activate(&wish)?
        };
        if changed && let Err(error) = reload(bus).await {
            self.places.forget_drop_in(&wish);
            return Err(Error::Io(format!("the system manager did not take the replica's settings: {error}")));
        }
        tracing::info!(replica = wish.replica(), digest = wish.digest(), changed, "engine pack activated");
        Ok(())
    }

    /// Writes down a reset that the next start follows, once, and returns its id. `scope` is `network`, `admin` or `factory`;
    /// `keep_models` counts for `factory`. A later wish takes the place of one that still waits. Nothing is restarted.
    async fn request_reset(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] header: zbus::message::Header<'_>,
        scope: &str,
        keep_models: bool,
    ) -> Result<String, Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let asker = self.asker(bus, &header).await?;
        let scope = Scope::read(scope, keep_models)?;
        allow(asker, scope)?;
        let record = {
            let _turn = self.one_at_a_time.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            self.places.desk.ask(scope, asker, crate::random())?
        };
        tracing::warn!(id = record.id, scope = scope.word(), ?asker, keep_models, "a reset waits for the next start");
        Ok(record.id)
    }

    /// Says that the agent did its part of the admin reset of this id. An id that waits for nothing is fine.
    async fn confirm_reset(
        &self,
        #[zbus(connection)] bus: &Connection,
        #[zbus(header)] header: zbus::message::Header<'_>,
        id: &str,
    ) -> Result<(), Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.asker(bus, &header).await? != Asker::Agent {
            return Err(Refusal::NotYours("confirming a reset").into());
        }
        if !is_id(id) {
            return Err(Refusal::BadReset(id.chars().take(80).collect()).into());
        }
        let _turn = self.one_at_a_time.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(self.places.desk.confirm(id)?)
    }

    /// Makes the other system slot the one that starts next, if it is good. Nothing is restarted.
    async fn rollback(&self, #[zbus(connection)] bus: &Connection, #[zbus(header)] header: zbus::message::Header<'_>) -> Result<(), Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.asker(bus, &header).await? != Asker::Agent {
            return Err(Refusal::NotYours("going back to the other system").into());
        }
        let slot = rollback::go_back(bus).await?;
        tracing::warn!(slot, "the other system starts next, by an admin's wish");
        Ok(())
    }

    /// Keeps the other system slot from being started, where the running one is good: what was installed is taken back.
    async fn give_up_other(&self, #[zbus(connection)] bus: &Connection, #[zbus(header)] header: zbus::message::Header<'_>) -> Result<(), Error> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.asker(bus, &header).await? != Asker::Agent {
            return Err(Refusal::NotYours("giving up the other system").into());
        }
        let slot = rollback::give_up(bus).await?;
        tracing::warn!(slot, "what was installed into the other slot is not started, by an admin's wish");
        Ok(())
    }
}

impl Helper {
    /// Who is behind a call, by the word of the bus itself.
    async fn asker(&self, bus: &Connection, header: &zbus::message::Header<'_>) -> Result<Asker, Error> {
        let sender = header.sender().ok_or(Refusal::NotYours("a call without a sender"))?;
        let uid = zbus::fdo::DBusProxy::new(bus)
            .await?
            .get_connection_unix_user(sender.clone().into())
            .await
            .map_err(|error| Error::Io(format!("the bus does not say who is calling: {error}; try again")))?;
        Ok(self.places.askers.who(uid)?)
    }
}

async fn reload(bus: &Connection) -> zbus::Result<()> {
    let manager = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
    bus.call_method(Some(manager.0), manager.1, Some(manager.2), "Reload", &()).await.map(|_| ())
}

/// A started service.
#[derive(Debug)]
pub struct Service {
    bus: Connection,
    calls: std::sync::Arc<AtomicU64>,
}

/// Offers the service on the bus that `builder` leads to.
///
/// # Errors
/// When the bus cannot be reached or the name is taken.
pub async fn offer(builder: zbus::connection::Builder<'_>, places: Places) -> zbus::Result<Service> {
    let calls = std::sync::Arc::new(AtomicU64::new(0));
    let helper = Helper { places, calls: calls.clone(), one_at_a_time: Mutex::new(()) };
    let bus = builder.serve_at(PATH, helper).name(NAME).build().await?;
    Ok(Service { bus, calls })
}

impl Service {
    /// Returns when nobody has called for `idle`. The name is given back first: a call that comes later starts the service anew, one
    /// that came before still gets its answer.
    ///
    /// # Errors
    /// When the bus fails.
    pub async fn until_idle(self, idle: Duration) -> zbus::Result<()> {
        let mut seen = self.calls.load(Ordering::Relaxed);
        loop {
            tokio::time::sleep(idle).await;
            let now = self.calls.load(Ordering::Relaxed);
            if now == seen {
                break;
            }
            seen = now;
        }
        self.bus.release_name(NAME).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(())
    }
}
