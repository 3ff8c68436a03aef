//! Log set-up: the journal on the appliance, lines on standard error elsewhere. `WARDEN_LOG` filters (default `info`).

use tracing_subscriber::{EnvFilter, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::Profile;

/// Starts logging for the process.
pub fn start(profile: Profile) {
    let filter = EnvFilter::try_from_env("WARDEN_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let journal = (profile == Profile::Appliance).then(|| tracing_journald::layer().ok()).flatten();
    let lines = journal.is_none().then(|| tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false));
    let registry = tracing_subscriber::registry().with(filter).with(lines);
    if registry.with(journal).try_init().is_err() {
        eprintln!("logging was already started; going on");
    }
}
