//! Network, name and clock of a box in memory: one port, changes that wait for their confirmation, and nothing that really moves.

use std::{net::IpAddr, sync::Mutex, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use warden_domain::{
    Problem, ProblemKind, Secret, clock,
    ids::AccountId,
    names::{NameDocument, Names},
    network::{Assigned, Begun, ChangeRequest, Interface, InterfaceConfig, LastChange, LinkState, Network, NetworkDocument, NetworkPlan, Pending},
    time::{Time, TimeConfig, TimeDocument, TimeState},
};

/// The token of every change.
pub const TOKEN: &str = "token-of-the-change";

/// A box's place on a network.
pub struct Place {
    /// What its document says; a test edits it.
    pub document: Mutex<NetworkDocument>,
    /// Its name.
    pub name: Mutex<Option<String>>,
    /// Its clock's source.
    pub time: Mutex<TimeConfig>,
}

impl Default for Place {
    fn default() -> Self {
        let eth0 = Interface {
            name: "eth0".into(),
            mac: Some("52:54:00:12:34:56".into()),
            state: LinkState::Connected,
            speed_mbit: Some(1000),
            addresses: vec![Assigned { address: IpAddr::from([192, 168, 1, 20]), prefix: 24 }],
            gateways: vec![IpAddr::from([192, 168, 1, 1])],
            dns: vec![IpAddr::from([192, 168, 1, 1])],
            search: vec![],
            config: Some(InterfaceConfig::default()),
        };
        let eth1 = Interface {
            name: "eth1".into(),
            state: LinkState::NoCable,
            speed_mbit: None,
            addresses: vec![],
            gateways: vec![],
            dns: vec![],
            config: None,
            ..eth0.clone()
        };
        Self {
            document: Mutex::new(NetworkDocument { unavailable: None, interfaces: vec![eth0, eth1], pending: None, last: None }),
            name: Mutex::new(None),
            time: Mutex::new(TimeConfig::default()),
        }
    }
}

fn plan_of(interface: &str, wanted: &InterfaceConfig) -> NetworkPlan {
    NetworkPlan {
        changes: vec![format!("{interface} changes from 192.168.1.20/24.")],
        warnings: vec![],
        console_urls: wanted.fixed().iter().map(|ip| format!("http://{ip}:8080/ui/")).collect(),
    }
}

#[async_trait]
impl Network for Place {
    async fn document(&self) -> NetworkDocument {
        self.document.lock().unwrap().clone()
    }

    async fn plan(&self, interface: &str, wanted: &InterfaceConfig) -> Result<NetworkPlan, Problem> {
        if !self.document.lock().unwrap().interfaces.iter().any(|i| i.name == interface) {
            return Err(Problem::new(ProblemKind::NotFound, format!("This box has no wired port {interface:?}.")));
        }
        Ok(plan_of(interface, wanted))
    }

    async fn change(&self, request: ChangeRequest) -> Result<Begun, Problem> {
        let plan = self.plan(&request.interface, &request.wanted).await?;
        let mut document = self.document.lock().unwrap();
        if document.pending.is_some() {
            return Err(Problem::new(ProblemKind::Conflict, "A change already waits for its confirmation."));
        }
        document.pending =
            Some(Pending { interface: request.interface, console_urls: plan.console_urls.clone(), seconds_left: request.window.as_secs() });
        Ok(Begun { plan, token: Secret::new(TOKEN.to_owned()), window: Duration::from_secs(60) })
    }

    async fn confirm(&self, token: &str, _: Option<IpAddr>) -> Result<LastChange, Problem> {
        if token != TOKEN {
            return Err(Problem::new(ProblemKind::NotFound, "This confirmation is not valid.").hint("Apply the change again."));
        }
        self.over(true)
    }

    async fn undo(&self) -> Result<LastChange, Problem> {
        self.over(false)
    }
}

impl Place {
    fn over(&self, kept: bool) -> Result<LastChange, Problem> {
        let mut document = self.document.lock().unwrap();
        let pending = document.pending.take().ok_or_else(|| Problem::new(ProblemKind::NotFound, "No network change waits for a confirmation."))?;
        let sentence = if kept { "The change is kept." } else { "The change was undone; the old settings are back." };
        let last = LastChange { interface: pending.interface, at: clock::now(), kept, sentence: sentence.to_owned() };
        document.last = Some(last.clone());
        Ok(last)
    }
}

#[async_trait]
impl Names for Place {
    async fn document(&self) -> NameDocument {
        let wanted = self.name.lock().unwrap().clone();
        NameDocument { present: Some(wanted.clone().unwrap_or_else(|| "test-box".into())), wanted, unavailable: None }
    }

    fn present(&self) -> String {
        self.name.lock().unwrap().clone().unwrap_or_else(|| "test-box".into())
    }

    async fn set(&self, name: Option<String>, _: &AccountId) -> Result<NameDocument, Problem> {
        if let Some(name) = &name {
            warden_domain::names::check(name)
                .map_err(|why| Problem::new(ProblemKind::Invalid, format!("{name:?} cannot be the name of a box: {why}.")).param("hostname"))?;
        }
        *self.name.lock().unwrap() = name;
        Ok(Names::document(self).await)
    }
}

#[async_trait]
impl Time for Place {
    async fn document(&self) -> TimeDocument {
        let config = self.time.lock().unwrap().clone();
        let state = TimeState {
            now: clock::now(),
            client_runs: Some(config != TimeConfig::Manual),
            synchronized: Some(false),
            servers: None,
            server: None,
            hardware_clock: None,
        };
        TimeDocument { config, state, unavailable: None }
    }

    async fn wanted(&self) -> TimeConfig {
        self.time.lock().unwrap().clone()
    }

    async fn configure(&self, config: TimeConfig, _: &AccountId) -> Result<TimeDocument, Problem> {
        *self.time.lock().unwrap() = config;
        Ok(Time::document(self).await)
    }

    async fn set_clock(&self, _: Timestamp, _: &AccountId) -> Result<TimeDocument, Problem> {
        if *self.time.lock().unwrap() != TimeConfig::Manual {
            return Err(Problem::new(ProblemKind::Conflict, "The time comes from time servers, so it cannot be set by hand."));
        }
        Ok(Time::document(self).await)
    }
}
