//! The clock over timesyncd and timedated. The root is read-only, so the system keeps neither servers nor mode: the agent does, and
//! gives them to the system at each start and whenever the time client was started anew.
//!
//! A clock set by hand needs the time client stopped; the moment itself lives in the machine's battery-backed clock.

mod proxies;
mod servers;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    clock,
    ids::AccountId,
    time::{Time, TimeConfig, TimeDocument, TimeState},
};
use warden_store::{
    Store,
    audit::{self, AuditRow},
    settings,
};

use crate::bus::{Bus, said};
use proxies::{CLIENT, TimedateProxy, TimesyncProxy, UnitProxy, UnitsProxy};

/// The store's name for the configuration.
const CONFIG: &str = "time.config";
/// How often the system is brought in line with the configuration.
const KEEP: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(3);
/// A unit that was told to stop or start does so within this.
const SETTLE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);

/// The room.
pub struct TimeRoom {
    bus: Arc<Bus>,
    store: Store,
    changes: Changes,
    /// One change at a time, and none while the system is brought in line: of two admins at once system and store must follow the same one.
    turn: tokio::sync::Mutex<()>,
}

impl TimeRoom {
    /// Opens the room and keeps the system as configured. What was never configured is left alone. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start(bus: Arc<Bus>, store: Store, changes: Changes) -> Arc<Self> {
        let room = Arc::new(Self { bus, store, changes, turn: tokio::sync::Mutex::new(()) });
        let keeping = Arc::downgrade(&room);
        tokio::spawn(async move {
            let mut warned = false;
            while let Some(room) = keeping.upgrade() {
                let outcome = room.keep().await;
                drop(room);
                match outcome {
                    Ok(()) => tokio::time::sleep(KEEP).await,
                    Err(problem) => {
                        if !warned {
                            tracing::warn!(%problem, "the clock's settings are not applied");
                        }
                        tokio::time::sleep(if warned { KEEP } else { RETRY }).await;
                        warned = true;
                    }
                }
            }
        });
        room
    }

    /// Brings the system in line with what is stored.
    async fn keep(&self) -> Result<(), Problem> {
        let _turn = self.turn.lock().await;
        match self.stored().await? {
            Some(config) => self.apply(&config).await,
            None => Ok(()),
        }
    }

    async fn stored(&self) -> Result<Option<TimeConfig>, Problem> {
        let text = self.store.read(|db| settings::get(db, CONFIG)).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    async fn timedate(&self) -> Result<TimedateProxy<'static>, Problem> {
        TimedateProxy::new(&self.bus.get().await?).await.map_err(|e| said("timedated", "be reached", &e))
    }

    async fn timesync(&self) -> Result<TimesyncProxy<'static>, Problem> {
        TimesyncProxy::new(&self.bus.get().await?).await.map_err(|e| said("timesyncd", "be reached", &e))
    }

    async fn units(&self) -> Result<UnitsProxy<'static>, Problem> {
        UnitsProxy::new(&self.bus.get().await?).await.map_err(|e| said("systemd", "be reached", &e))
    }

    /// The time client's state word; a unit that is not loaded is `inactive`.
    async fn client_state(&self) -> Result<String, Problem> {
        let path = match self.units().await?.get_unit(CLIENT).await {
            Ok(path) => path,
            // Not loaded is not running; without a system manager nothing is known.
            Err(zbus::Error::MethodError(name, ..)) if name.ends_with("NoSuchUnit") => return Ok("inactive".to_owned()),
            Err(error) => return Err(said("systemd", "tell whether the time client runs", &error)),
        };
        let bus = self.bus.get().await?;
        let asked = async { UnitProxy::builder(&bus).path(path).build().await?.active_state().await };
        asked.await.map_err(|e| said("systemd", "tell whether the time client runs", &e))
    }

    /// Brings the system in line; does nothing where it is.
    async fn apply(&self, config: &TimeConfig) -> Result<(), Problem> {
        match config {
            TimeConfig::Manual => self.stop_client().await,
            TimeConfig::Ntp { servers } => {
                self.start_client().await?;
                let timesync = self.timesync().await?;
                let told = timesync.servers().await.map_err(|e| said("timesyncd", "tell its servers", &e))?;
                if told != *servers {
                    timesync.set_servers(servers).await.map_err(|e| said("timesyncd", "take the time servers", &e))?;
                }
                Ok(())
            }
        }
    }

    async fn stop_client(&self) -> Result<(), Problem> {
        if matches!(self.client_state().await?.as_str(), "inactive" | "failed") {
            return Ok(());
        }
        self.units().await?.stop_unit(CLIENT, "replace").await.map_err(|e| said("systemd", "stop the time client", &e))?;
        self.settle("stop", |state| matches!(state, "inactive" | "failed")).await
    }

    async fn start_client(&self) -> Result<(), Problem> {
        if self.client_state().await? == "active" {
            return Ok(());
        }
        self.units().await?.start_unit(CLIENT, "replace").await.map_err(|e| said("systemd", "start the time client", &e))?;
        self.settle("start", |state| state == "active").await
    }

    async fn settle(&self, verb: &str, there: impl Fn(&str) -> bool) -> Result<(), Problem> {
        let until = tokio::time::Instant::now() + SETTLE;
        loop {
            let state = self.client_state().await?;
            if there(&state) {
                return Ok(());
            }
            if tokio::time::Instant::now() >= until {
                return Err(Problem::new(ProblemKind::SystemService, format!("The time client did not {verb}: it is {state}."))
                    .hint("Try again; the system's log says more."));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn state(&self) -> Result<TimeState, Problem> {
        let runs = self.client_state().await? == "active";
        let timedate = self.timedate().await?;
        let (servers, server) = if runs {
            let timesync = self.timesync().await?;
            (timesync.servers().await.ok(), timesync.server().await.ok().filter(|name| !name.is_empty()))
        } else {
            (None, None)
        };
        let hardware = timedate.hardware_clock().await.ok().filter(|us| *us > 0).and_then(|us| i64::try_from(us).ok());
        Ok(TimeState {
            now: clock::now(),
            client_runs: Some(runs),
            synchronized: timedate.synchronized().await.ok(),
            servers,
            server,
            hardware_clock: hardware.and_then(|us| Timestamp::from_microsecond(us).ok()),
        })
    }

    async fn record(&self, config: Option<&TimeConfig>, action: &'static str, subject: String, account: &AccountId) -> Result<(), Problem> {
        let text = config
            .map(serde_json::to_string)
            .transpose()
            .map_err(|cause| Problem::internal(format!("the clock's settings cannot be written: {cause}.")))?;
        let account = account.clone();
        self.store
            .write(move |tx| {
                if let Some(text) = &text {
                    settings::set(tx, CONFIG, text)?;
                }
                audit::insert(
                    tx,
                    &AuditRow { at: clock::now(), account: Some(account.clone()), action, subject: Some(subject.clone()), outcome: "ok" },
                )
            })
            .await?;
        self.changes.publish(Topic::Network);
        Ok(())
    }
}

#[async_trait]
impl Time for TimeRoom {
    async fn wanted(&self) -> TimeConfig {
        self.stored().await.ok().flatten().unwrap_or_default()
    }

    async fn document(&self) -> TimeDocument {
        let config = self.stored().await.ok().flatten().unwrap_or_default();
        match self.state().await {
            Ok(state) => TimeDocument { config, state, unavailable: None },
            Err(problem) => {
                let state = TimeState { now: clock::now(), client_runs: None, synchronized: None, servers: None, server: None, hardware_clock: None };
                TimeDocument { config, state, unavailable: Some(problem.full_text()) }
            }
        }
    }

    async fn configure(&self, config: TimeConfig, account: &AccountId) -> Result<TimeDocument, Problem> {
        if let TimeConfig::Ntp { servers } = &config {
            servers::check(servers)?;
        }
        let _turn = self.turn.lock().await;
        self.apply(&config).await?;
        let subject = match &config {
            TimeConfig::Manual => "manual".to_owned(),
            TimeConfig::Ntp { servers } => format!("ntp {}", servers.join(" ")),
        };
        self.record(Some(&config), "time.configure", subject, account).await?;
        Ok(self.document().await)
    }

    async fn set_clock(&self, to: Timestamp, account: &AccountId) -> Result<TimeDocument, Problem> {
        servers::check_moment(to)?;
        let _turn = self.turn.lock().await;
        if self.stored().await?.unwrap_or_default() != TimeConfig::Manual {
            return Err(Problem::new(ProblemKind::Conflict, "The time comes from time servers, so it cannot be set by hand.")
                .hint("Choose the clock set by hand first."));
        }
        self.stop_client().await?;
        let set = self.timedate().await?.set_time(to.as_microsecond(), false, false).await;
        set.map_err(|e| said("timedated", "set the clock", &e))?;
        self.record(None, "time.set", to.to_string(), account).await?;
        Ok(self.document().await)
    }
}
