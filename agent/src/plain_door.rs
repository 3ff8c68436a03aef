//! The plain port of the appliance: shut until an admin opens it.
//!
//! Open means three things: the packet filter lets it through, this agent listens on it, and systemd keeps the socket while the agent
//! restarts (its file descriptor store), so that a restart refuses nobody there either. Shutting undoes all three.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
    sync::Arc,
};

use async_trait::async_trait;
use sd_notify::NotifyState;
use tokio::{
    net::TcpListener,
    sync::{Mutex, watch},
    task::JoinHandle,
};
use warden_domain::{Problem, front::PlainDoor};

use crate::sockets;

/// The socket's name in systemd's store.
pub const STORED_AS: &str = "plain";
/// The port.
pub const PORT: u16 = 8080;

/// Serves one listener until it is told to stop; given by the wiring once the router exists.
pub type Serve = Box<dyn Fn(TcpListener, watch::Receiver<bool>) -> JoinHandle<()> + Send + Sync>;

/// The door of the appliance.
pub struct Door {
    serve: tokio::sync::OnceCell<Serve>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// A socket that systemd kept over a restart and that nobody serves yet.
    kept: Option<TcpListener>,
    /// What is served now, and how to stop it.
    served: Option<(watch::Sender<bool>, JoinHandle<()>)>,
}

impl Door {
    /// A door; `kept` is the socket systemd held for us, if it did.
    #[must_use]
    pub fn new(kept: Option<TcpListener>) -> Arc<Self> {
        Arc::new(Self { serve: tokio::sync::OnceCell::new(), state: Mutex::new(State { kept, served: None }) })
    }

    /// Says how a listener is served. Before that the door cannot be opened.
    pub fn serve_with(&self, serve: Serve) {
        let _only_once = self.serve.set(serve);
    }

    /// Serves no new connection from now on, because the agent ends; systemd keeps the socket for the next one. What is open ends with
    /// the agent's other connections.
    pub async fn pause(&self) {
        if let Some((stop, _ends_with_the_others)) = self.state.lock().await.served.take() {
            let _ = stop.send(true);
        }
    }

    /// Drops a kept socket that nobody wants: the decision changed while the agent was down.
    pub async fn forget_unwanted(&self) {
        let mut state = self.state.lock().await;
        if state.served.is_none() && state.kept.take().is_some() {
            let _ = sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(STORED_AS)]);
        }
    }
}

#[async_trait]
impl PlainDoor for Door {
    async fn open(&self) -> Result<(), Problem> {
        let mut state = self.state.lock().await;
        warden_platform::firewall::let_plain_through(true).await?;
        if state.served.is_some() {
            return Ok(());
        }
        let serve = self.serve.get().ok_or_else(|| Problem::internal("The plain port was to be opened before the agent could serve."))?;
        let listener = match state.kept.take() {
            Some(listener) => listener,
            None => {
                // A box without IPv6 has no such address to bind.
                let listener =
                    sockets::bind((Ipv6Addr::UNSPECIFIED, PORT).into()).or_else(|_| sockets::bind((Ipv4Addr::UNSPECIFIED, PORT).into()))?;
                // Without systemd's store a restart of the agent refuses connections here for a moment; that is no reason to stay shut.
                if let Err(error) = sd_notify::notify_with_fds(&[NotifyState::FdStore, NotifyState::FdName(STORED_AS)], &[listener.as_fd()]) {
                    tracing::warn!(%error, "systemd does not keep the plain port's socket");
                }
                listener
            }
        };
        let (stop, stopped) = watch::channel(false);
        state.served = Some((stop, serve(listener, stopped)));
        tracing::info!(port = PORT, "the plain port is open");
        Ok(())
    }

    async fn close(&self) -> Result<(), Problem> {
        let mut state = self.state.lock().await;
        let _ = sd_notify::notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(STORED_AS)]);
        state.kept = None;
        if let Some((stop, _ends_by_itself)) = state.served.take() {
            let _ = stop.send(true);
            tracing::info!(port = PORT, "the plain port is shut");
        }
        warden_platform::firewall::let_plain_through(false).await
    }
}
