//! The appliance's own machine over the system bus: the log-in service restarts it and switches it off, the root helper writes resets
//! down. What the last start did about resets is read from the list that the helper keeps.

use std::{path::PathBuf, time::Duration};

use async_trait::async_trait;
use serde::Deserialize;
use warden_domain::{
    Problem, ProblemKind,
    machine::{Machine, Power},
};
use zbus::{Connection, proxy};

/// The list of consumed resets.
const CONSUMED: &str = "/state/reset/consumed";
/// How long a service may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

#[proxy(interface = "org.freedesktop.login1.Manager", default_service = "org.freedesktop.login1", default_path = "/org/freedesktop/login1")]
trait Login {
    fn reboot(&self, interactive: bool) -> zbus::Result<()>;
    fn power_off(&self, interactive: bool) -> zbus::Result<()>;
}

#[proxy(interface = "org.lmwarden.Helper1", default_service = "org.lmwarden.Helper1", default_path = "/org/lmwarden/Helper1")]
trait Helper {
    fn request_reset(&self, scope: &str, keep_models: bool) -> zbus::Result<String>;
    fn confirm_reset(&self, id: &str) -> zbus::Result<()>;
    fn rollback(&self) -> zbus::Result<()>;
    fn give_up_other(&self) -> zbus::Result<()>;
}

/// The machine the appliance runs on.
#[derive(Clone, Debug)]
pub struct ApplianceMachine {
    consumed: PathBuf,
}

impl Default for ApplianceMachine {
    fn default() -> Self {
        Self { consumed: CONSUMED.into() }
    }
}

impl ApplianceMachine {
    /// Makes the other system slot the one that starts next.
    ///
    /// # Errors
    /// `SystemService` when the helper cannot be reached, or there is no good system to go back to.
    pub async fn roll_back() -> Result<(), Problem> {
        answered("The other system was not made the next one", "the root helper", async {
            HelperProxy::new(&Connection::system().await?).await?.rollback().await
        })
        .await
    }

    /// Keeps the other system slot from being started.
    ///
    /// # Errors
    /// `SystemService` when the helper cannot be reached, or the running system was never found good.
    pub async fn give_up_other() -> Result<(), Problem> {
        answered("The installed system was not taken back", "the root helper", async {
            HelperProxy::new(&Connection::system().await?).await?.give_up_other().await
        })
        .await
    }
}

#[async_trait]
impl Machine for ApplianceMachine {
    fn offered(&self) -> bool {
        true
    }

    async fn power(&self, power: Power) -> Result<(), Problem> {
        let (what, service) = match power {
            Power::Reboot => ("The machine could not be restarted", "the log-in service"),
            Power::Off => ("The machine could not be switched off", "the log-in service"),
        };
        answered(what, service, async {
            let login = LoginProxy::new(&Connection::system().await?).await?;
            taken(match power {
                Power::Reboot => login.reboot(false).await,
                Power::Off => login.power_off(false).await,
            })
        })
        .await
    }

    async fn request_factory_reset(&self, keep_models: bool) -> Result<String, Problem> {
        answered("The factory reset was not taken, nothing was changed", "the root helper", async {
            HelperProxy::new(&Connection::system().await?).await?.request_reset("factory", keep_models).await
        })
        .await
    }

    async fn handed_admin_reset(&self) -> Option<String> {
        let path = self.consumed.clone();
        let text = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await.ok()?.ok()?;
        handed(&text)
    }

    async fn confirm_admin_reset(&self, id: &str) -> Result<(), Problem> {
        answered("The admin reset could not be marked as applied", "the root helper", async {
            HelperProxy::new(&Connection::system().await?).await?.confirm_reset(id).await
        })
        .await
    }
}

/// A service that went away instead of answering went away with the machine: the wish was taken.
fn taken(answer: zbus::Result<()>) -> zbus::Result<()> {
    match answer {
        Err(zbus::Error::MethodError(name, ..)) if name.as_str() == "org.freedesktop.DBus.Error.NoReply" => Ok(()),
        other => other,
    }
}

/// Waits for a service, bounded, and turns its refusal into a sentence.
async fn answered<T>(what: &str, service: &str, call: impl Future<Output = zbus::Result<T>> + Send) -> Result<T, Problem> {
    let failed = |cause: String| {
        Problem::new(ProblemKind::SystemService, format!("{what}: {service} {cause}."))
            .hint("Try again in a moment. If it stays, use the menu on the machine's own screen, or its power button.")
    };
    match tokio::time::timeout(PATIENCE, call).await {
        Err(_) => Err(failed(format!("did not answer within {} s", PATIENCE.as_secs()))),
        Ok(Err(zbus::Error::MethodError(name, sentence, _))) => Err(failed(format!("refused: {}", sentence.unwrap_or_else(|| name.to_string())))),
        Ok(other) => other.map_err(|error| failed(format!("cannot be reached: {error}"))),
    }
}

#[derive(Deserialize)]
struct Journal {
    #[serde(default)]
    resets: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    stage: String,
    record: Wish,
}

#[derive(Deserialize)]
struct Wish {
    id: String,
    scope: String,
}

/// The admin reset that waits for the agent, by the helper's list.
fn handed(text: &str) -> Option<String> {
    let journal: Journal = serde_json::from_str(text).map_err(|error| tracing::warn!(%error, "the list of resets cannot be read")).ok()?;
    journal.resets.into_iter().rev().find(|entry| entry.stage == "handed" && entry.record.scope == "admin").map(|entry| entry.record.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_admin_reset_that_waits_is_applied() {
        let entry = |stage: &str, scope: &str, id: &str| {
            format!(r#"{{"stage":"{stage}","record":{{"version":1,"id":"{id}","scope":"{scope}","asked_by":"screen","machine":"m","epoch":"e"}}}}"#)
        };
        let list = |entries: &[String]| format!(r#"{{"resets":[{}]}}"#, entries.join(","));
        assert_eq!(handed(&list(&[entry("done", "admin", "a"), entry("handed", "admin", "b"), entry("done", "network", "c")])), Some("b".into()));
        assert_eq!(handed(&list(&[entry("done", "admin", "a"), entry("begun", "admin", "b")])), None);
        assert_eq!(handed("{ torn"), None);
        assert_eq!(handed("{}"), None);
    }

    #[tokio::test]
    async fn without_a_system_bus_the_sentence_says_what_did_not_happen() {
        let problem =
            answered::<()>("Nothing was changed", "the root helper", async { Err(zbus::Error::Failure("no bus".into())) }).await.unwrap_err();
        assert_eq!(problem.kind, ProblemKind::SystemService);
        assert!(problem.full_text().contains("Nothing was changed: the root helper cannot be reached") && problem.hint.is_some());
    }
}
