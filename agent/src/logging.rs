//! Log set-up: the journal on the appliance, lines on standard error elsewhere. `WARDEN_LOG` filters: a level, or `target=level` with commas
//! between (default `info`).

use std::io::IsTerminal;

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
    let lines = journal.is_none().then(|| {
        let colour = coloured(std::io::stderr().is_terminal(), std::env::var("NO_COLOR").ok().as_deref());
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colour).with_target(false)
    });
    let registry = tracing_subscriber::registry().with(filter).with(lines);
    if registry.with(journal).try_init().is_err() {
        eprintln!("logging was already started; going on");
    }
}

/// Colour is for people at a terminal who did not ask for none (<https://no-color.org>); in a file it is rubbish.
fn coloured(terminal: bool, no_color: Option<&str>) -> bool {
    terminal && no_color.is_none_or(str::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_in_a_file_has_no_colour_in_it() {
        assert!(coloured(true, None) && coloured(true, Some("")));
        assert!(!coloured(false, None) && !coloured(true, Some("1")));
    }
}
