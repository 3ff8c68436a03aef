//! The system manager over D-Bus: which units failed, how one of them stands, and the start of the one the agent may start.
//! Only calls that the bus policy lets the agent's user make.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use warden_domain::{Problem, ProblemKind};
use zbus::{Connection, OwnedObjectPath, connection, proxy};

/// The service that keeps the clock; the one unit besides engines that the agent may start.
pub(crate) const TIME_SERVICE: &str = "systemd-timesyncd.service";

const CALL_LIMIT: Duration = Duration::from_secs(5);

type ListedUnit = (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

#[proxy(interface = "org.freedesktop.systemd1.Manager", default_service = "org.freedesktop.systemd1", default_path = "/org/freedesktop/systemd1")]
trait Manager {
    fn start_unit(&self, name: &str, mode: &str) -> zbus::Result<OwnedObjectPath>;
    fn list_units_by_patterns(&self, states: &[&str], patterns: &[&str]) -> zbus::Result<Vec<ListedUnit>>;
}

/// A unit that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedUnit {
    pub(crate) name: String,
    pub(crate) description: String,
}

/// Units, as the checks see them.
#[async_trait]
pub(crate) trait Units: Send + Sync {
    /// Units that failed; engines are left out, their models tell of them.
    async fn failed(&self) -> Result<Vec<FailedUnit>, Problem>;
    /// The active state of the time service, such as `active` or `inactive`.
    async fn time_service(&self) -> Result<String, Problem>;
    /// Starts the time service.
    async fn start_time_service(&self) -> Result<(), Problem>;
}

/// The real system manager; connected to when first needed and again after the connection was lost.
#[derive(Default)]
pub(crate) struct SystemUnits(Mutex<Option<Connection>>);

impl SystemUnits {
    async fn manager(&self) -> Result<ManagerProxy<'static>, Problem> {
        let mut held = self.0.lock().await;
        let bus = match held.as_ref().filter(|bus| !bus.is_closed()) {
            Some(bus) => bus.clone(),
            None => {
                let connecting = async { connection::Builder::system().method_timeout(CALL_LIMIT).build().await };
                let made = tokio::time::timeout(CALL_LIMIT, connecting).await.map_err(|_| no_bus("it did not answer in time"))?;
                held.insert(made.map_err(|cause| no_bus(&cause.to_string()))?).clone()
            }
        };
        ManagerProxy::new(&bus).await.map_err(|cause| said("reach the system manager", &cause))
    }

    async fn list(&self, states: &[&str], patterns: &[&str]) -> Result<Vec<ListedUnit>, Problem> {
        self.manager().await?.list_units_by_patterns(states, patterns).await.map_err(|cause| said("list the system's services", &cause))
    }
}

#[async_trait]
impl Units for SystemUnits {
    async fn failed(&self) -> Result<Vec<FailedUnit>, Problem> {
        let units = self.list(&["failed"], &[]).await?;
        let engines = |name: &str| name.starts_with("warden-engine@");
        Ok(units.into_iter().filter(|unit| !engines(&unit.0)).map(|unit| FailedUnit { name: unit.0, description: unit.1 }).collect())
    }

    async fn time_service(&self) -> Result<String, Problem> {
        let found = self.list(&[], &[TIME_SERVICE]).await?;
        // A unit that nothing holds in memory is not listed at all: it does not run.
        Ok(found.into_iter().next().map_or_else(|| "inactive".to_owned(), |unit| unit.3))
    }

    async fn start_time_service(&self) -> Result<(), Problem> {
        self.manager().await?.start_unit(TIME_SERVICE, "replace").await.map(drop).map_err(|cause| said("start the time service", &cause))
    }
}

fn no_bus(cause: &str) -> Problem {
    Problem::new(ProblemKind::SystemService, format!("The system bus cannot be reached: {cause}."))
        .hint("This works on the appliance; on other machines no system service is looked at.")
}

fn said(what: &str, cause: &zbus::Error) -> Problem {
    Problem::new(ProblemKind::SystemService, format!("The system manager refused to {what}: {cause}.")).hint("Restart the appliance if it stays so.")
}
