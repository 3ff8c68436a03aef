//! Log set-up: the journal on the appliance, lines on standard error elsewhere. `WARDEN_LOG` filters: a level, or `target=level` with commas
//! between (default `info`).

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::config::Profile;

/// Starts logging for the process.
pub fn start(profile: Profile) {
    let wish = std::env::var("WARDEN_LOG").unwrap_or_default();
    let filter: Targets = wish.parse().unwrap_or_else(|_| Targets::new());
    let filter = if wish.is_empty() || filter.default_level().is_none() { filter.with_default(LevelFilter::INFO) } else { filter };
    let journal = (profile == Profile::Appliance).then(|| tracing_journald::layer().ok()).flatten();
    let lines = journal.is_none().then(|| tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false));
    let registry = tracing_subscriber::registry().with(filter).with(lines);
    if registry.with(journal).try_init().is_err() {
        eprintln!("logging was already started; going on");
    }
}
