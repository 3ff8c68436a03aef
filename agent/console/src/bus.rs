//! The two services that carry out what was confirmed at the screen: the helper writes a reset down, the log-in service restarts the
//! machine or switches it off. Each question has a time limit: a stuck service must not make the screen stand still.

use std::time::Duration;

use zbus::{Connection, proxy};

use crate::menu::{Effect, Reset};

const PATIENCE: Duration = Duration::from_secs(25);

#[proxy(interface = "org.lmwarden.Helper1", default_service = "org.lmwarden.Helper1", default_path = "/org/lmwarden/Helper1")]
trait Helper {
    fn request_reset(&self, scope: &str, keep_models: bool) -> zbus::Result<String>;
}

#[proxy(interface = "org.freedesktop.login1.Manager", default_service = "org.freedesktop.login1", default_path = "/org/freedesktop/login1")]
trait Login {
    fn reboot(&self, interactive: bool) -> zbus::Result<()>;
    fn power_off(&self, interactive: bool) -> zbus::Result<()>;
}

/// Carries an effect out and says what became of it.
#[must_use]
pub fn carry_out(effect: Effect) -> String {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return format!("Not done: no memory for the call ({error}). Switch the machine off with its power button."),
    };
    runtime.block_on(async {
        match effect {
            Effect::Reboot => in_time(reboot()).await.map_or_else(power_failed, |()| "The machine restarts now.".to_owned()),
            Effect::PowerOff => in_time(power_off()).await.map_or_else(power_failed, |()| "The machine switches off now.".to_owned()),
            Effect::Reset(reset) => run_reset(reset).await,
            // The agent's, not a service's.
            Effect::Update | Effect::Redraw => String::new(),
        }
    })
}

async fn run_reset(reset: Reset) -> String {
    match in_time(ask(reset)).await {
        Err(error) => format!("Not done, nothing was changed: the {} reset was not taken: {error}.", reset.scope),
        Ok(id) => {
            tracing_line(&format!("{} reset {id} was asked for at this screen", reset.scope));
            match in_time(reboot()).await {
                Ok(()) => format!("The {} reset is written down. The machine restarts now.", reset.scope),
                Err(error) => format!(
                    "The {} reset is written down and will be done at the next start. The restart failed ({error}): switch the machine off and on.",
                    reset.scope
                ),
            }
        }
    }
}

fn power_failed(error: String) -> String {
    format!("Not done: {error}. Hold the power button of the machine if it must go off.")
}

/// Standard error is the journal.
fn tracing_line(text: &str) {
    eprintln!("console: {text}");
}

async fn ask(reset: Reset) -> zbus::Result<String> {
    let bus = Connection::system().await?;
    HelperProxy::new(&bus).await?.request_reset(reset.scope, reset.keep_models).await
}

async fn reboot() -> zbus::Result<()> {
    let bus = Connection::system().await?;
    taken(LoginProxy::new(&bus).await?.reboot(false).await)
}

async fn power_off() -> zbus::Result<()> {
    let bus = Connection::system().await?;
    taken(LoginProxy::new(&bus).await?.power_off(false).await)
}

/// A service that went away instead of answering went away with the machine: the wish was taken.
fn taken(answer: zbus::Result<()>) -> zbus::Result<()> {
    match answer {
        Err(zbus::Error::MethodError(name, ..)) if name.as_str() == "org.freedesktop.DBus.Error.NoReply" => Ok(()),
        other => other,
    }
}

async fn in_time<T>(call: impl Future<Output = zbus::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, call).await {
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
        Ok(Err(zbus::Error::MethodError(_, Some(sentence), _))) => Err(sentence),
        Ok(other) => other.map_err(|error| error.to_string()),
    }
}
