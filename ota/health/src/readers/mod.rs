//! The real eyes: each file reads one source and judges nothing.

mod bus;
mod http;
mod kernel;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use zbus::Connection;

use crate::checks::Expected;
use crate::facts::{Console, Facts, Model, Told};
use crate::run::Eyes;

/// For one call over the network or the bus.
const PATIENCE: Duration = Duration::from_secs(10);

/// The appliance as it can be seen from inside.
#[derive(Debug, Clone)]
pub struct Appliance {
    /// The system bus.
    pub bus: Connection,
    /// The agent's local socket.
    pub socket: PathBuf,
    /// For one model's token.
    pub model: Duration,
}

impl Appliance {
    /// Trusts what the box itself signed, and nothing else. The certificate comes from the plain port, as a visitor's would.
    async fn trust(&self) -> Told<Arc<rustls::ClientConfig>> {
        http::trust(&http::authority(PATIENCE).await?)
    }

    async fn consoles(&self, addresses: &[IpAddr], port: u16) -> Vec<Console> {
        let trust = self.trust().await;
        let ask = |address: IpAddr| {
            let trust = trust.clone();
            async move {
                let (version, form) = match trust {
                    Ok(trust) => {
                        let door = http::Door { address, port, trust };
                        (door.version(PATIENCE).await, door.shows_form(PATIENCE).await)
                    }
                    Err(cause) => (Err(cause.clone()), Err(cause)),
                };
                Console { address, version, form }
            }
        };
        join_all(addresses.iter().copied().map(ask)).await
    }

    async fn models(&self, expected: &Expected) -> Vec<Model> {
        let served = expected.before.iter().flat_map(|before| &before.served_models);
        let ask = |name: String| async move {
            let token = http::token(&self.socket, &name, self.model).await;
            Model { name, token }
        };
        join_all(served.map(|model| ask(model.name.clone()))).await
    }
}

impl Eyes for Appliance {
    async fn look(&self, expected: &Expected) -> Facts {
        let addresses = kernel::addresses();
        let ask_at = expected.ask_at(addresses.as_deref().unwrap_or_default());
        let (agent, failed, bus, consoles, models) = tokio::join!(
            bus::unit(&self.bus, "warden-agent.service"),
            bus::failed_units(&self.bus),
            bus::names(&self.bus),
            self.consoles(&ask_at, expected.port()),
            self.models(expected),
        );
        Facts {
            slot: kernel::slot(),
            verity: kernel::verity(),
            state: kernel::mounted("/state"),
            data: kernel::data_uuid(),
            agent,
            failed,
            bus,
            addresses,
            consoles,
            gpus: kernel::gpus(),
            models,
        }
    }

    async fn agent_answers(&self) -> Result<(), String> {
        let door = http::Door { address: IpAddr::from([127, 0, 0, 1]), port: 443, trust: self.trust().await? };
        door.version(PATIENCE).await.map(drop)
    }
}
