//! Root verbs over D-Bus, typed and few. Started by the bus when somebody calls, gone when idle.

use std::process::ExitCode;
use std::time::Duration;

use warden_helper::bus;
use warden_helper::places::Places;

const IDLE: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    // The journal adds time and unit by itself.
    tracing_subscriber::fmt().without_time().with_ansi(false).with_target(false).with_writer(std::io::stderr).init();
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("the system bus cannot be served: {error}; is dbus running and its policy for {} installed?", bus::NAME);
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> zbus::Result<()> {
    let service = bus::offer(zbus::connection::Builder::system(), Places::appliance()).await?;
    service.until_idle(IDLE).await
}
