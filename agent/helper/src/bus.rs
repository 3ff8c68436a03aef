//! The typed service `org.lmwarden.Helper1`. Who may call is the bus policy's matter; what a call may say is `verb`'s. The service goes
//! away when nobody has called for a while, and the bus starts it again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use zbus::Connection;

use crate::places::Places;
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
