//! The system bus: connected to when it is first needed, and again after it was lost.

use std::time::Duration;

use tokio::sync::Mutex;
use warden_domain::{Problem, ProblemKind};
use zbus::{Connection, DBusError, connection};

/// A service that has not answered by then is taken for dead.
const CALL_LIMIT: Duration = Duration::from_secs(25);

/// One shared connection, made on demand.
#[derive(Debug, Default)]
pub struct Bus {
    /// Another bus than the system's; tests use one of their own.
    address: Option<String>,
    held: Mutex<Option<Connection>>,
}

impl Bus {
    /// The bus at an address, for tests.
    #[must_use]
    pub fn at(address: String) -> Self {
        Self { address: Some(address), held: Mutex::new(None) }
    }

    /// The connection, made anew when the last one was lost.
    ///
    /// # Errors
    /// `SystemService` when there is no bus.
    pub async fn get(&self) -> Result<Connection, Problem> {
        let mut held = self.held.lock().await;
        if let Some(connection) = held.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let connecting = async {
            let builder = match &self.address {
                Some(address) => connection::Builder::address(address.as_str()),
                None => connection::Builder::system(),
            };
            builder.method_timeout(CALL_LIMIT).build().await
        };
        let connection = match tokio::time::timeout(CALL_LIMIT, connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(cause)) => return Err(no_bus(&cause.to_string())),
            Err(_) => return Err(no_bus("it did not answer in time")),
        };
        *held = Some(connection.clone());
        Ok(connection)
    }
}

fn no_bus(why: &str) -> Problem {
    Problem::new(ProblemKind::SystemService, format!("The system bus cannot be reached: {}.", why.trim_end_matches('.')))
        .hint("The appliance always has one; on a development machine start the package dbus, or do without this page.")
}

/// What a failed call to a service means for the person who asked for it.
#[must_use]
pub fn said(service: &str, deed: &str, error: &zbus::Error) -> Problem {
    if absent(error) {
        return Problem::new(ProblemKind::SystemService, format!("{service} does not run on this machine, so it cannot {deed}."))
            .hint("On the appliance it always runs; on a development machine install and start it.");
    }
    let (name, sentence) = parts(error);
    if name.ends_with("AccessDenied") || name.ends_with("PermissionDenied") || name.ends_with("InteractiveAuthorizationRequired") {
        return Problem::new(ProblemKind::SystemService, format!("{service} does not let the agent's user {deed}."))
            .hint("On the appliance the image grants this; on a development machine run the agent as an account that may.");
    }
    Problem::new(ProblemKind::SystemService, format!("{service} could not {deed}: {}.", sentence.trim_end_matches('.')))
}

/// Whether nobody owns the name that was called.
#[must_use]
pub fn absent(error: &zbus::Error) -> bool {
    let (name, _) = parts(error);
    name.contains(".Spawn.") || ["ServiceUnknown", "NameHasNoOwner", "UnknownObject", "systemd1.NoSuchUnit"].iter().any(|end| name.ends_with(end))
}

/// Name and sentence of an error; the bus library keeps the bus's own errors apart from those of services.
fn parts(error: &zbus::Error) -> (String, String) {
    match error {
        zbus::Error::MethodError(name, sentence, _) => (name.to_string(), sentence.clone().unwrap_or_default()),
        zbus::Error::FDO(inner) => (inner.name().to_string(), inner.description().unwrap_or_default().to_owned()),
        other => (String::new(), other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zbus::fdo;

    fn from_bus(error: fdo::Error) -> zbus::Error {
        zbus::Error::FDO(Box::new(error))
    }

    #[test]
    fn a_machine_without_the_service_is_told_so_with_the_way_out() {
        let error = from_bus(fdo::Error::ServiceUnknown("The name is not activatable".into()));
        assert!(absent(&error));
        let problem = said("NetworkManager", "show the network", &error);
        assert_eq!(problem.kind, ProblemKind::SystemService);
        assert!(problem.message.contains("does not run on this machine") && problem.hint.is_some(), "{problem:?}");
    }

    #[test]
    fn a_refusal_is_not_taken_for_an_absence() {
        let error = from_bus(fdo::Error::AccessDenied("no".into()));
        assert!(!absent(&error));
        assert!(said("timedated", "set the clock", &error).message.contains("does not let the agent's user set the clock"));
    }

    #[test]
    fn another_failure_keeps_the_services_own_words() {
        let problem = said("timedated", "set the clock", &from_bus(fdo::Error::Failed("Previous request is not finished.".into())));
        assert_eq!(problem.message, "timedated could not set the clock: Previous request is not finished.");
    }
}
