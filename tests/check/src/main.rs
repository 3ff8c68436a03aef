//! `warden-check`: runs the acceptance lists on real parts and writes evidence.
//!
//! `warden-check slice` runs every id of `tests/accept/slice.toml`, prints a line for each, one line of figures and `N passed, N failed`,
//! and writes `target/evidence/slice.json`. It exits non-zero when an id failed or was not executed, or a threshold is missed.

mod agent;
mod alone;
mod appliance;
mod budgets;
mod cases;
mod cold_root;
mod command;
mod console;
mod evidence;
mod front_door;
mod http;
mod images;
mod lanes;
mod list;
mod log;
mod make_run;
mod places;
mod plan;
mod report;
mod result;
mod run;
mod stage;

use std::process::ExitCode;

use clap::Parser;

/// Runs an acceptance list.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    /// The list, by the name of its file in tests/accept.
    #[arg(default_value = "slice")]
    check: String,
    /// Run only these ids (separated by commas); such a run never counts as complete.
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    only: Vec<String>,
    /// Run only what needs this; such a run never counts as complete.
    #[arg(long)]
    tier: Option<cases::Tier>,
    /// Run one id with its deliberate break (`rotate` = the one whose turn it is today, with --tier among those of the tier). Exits non-zero when the break was seen.
    #[arg(long, value_name = "ID", conflicts_with = "only")]
    sabotage: Option<String>,
    /// With --sabotage: exit zero when the break was seen.
    #[arg(long, requires = "sabotage")]
    expect_fail: bool,
    /// Where a clean checkout is asked for, take the files of the working tree (for work in progress); such a run never counts as complete.
    #[arg(long)]
    worktree: bool,
    /// Put the programs of an earlier image build into the images (for work in progress); such a run never counts as complete.
    #[arg(long)]
    as_they_are: bool,
    /// When the surrounding CI run began, in seconds since the epoch; measures `ci_minutes`.
    #[arg(long, value_name = "SECONDS")]
    ci_started: Option<i64>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let wishes = run::Wishes {
        only: cli.only,
        tier: cli.tier,
        sabotage: cli.sabotage,
        expect_fail: cli.expect_fail,
        worktree: cli.worktree,
        as_they_are: cli.as_they_are,
        ci_started: cli.ci_started,
    };
    run::run(&cli.check, &wishes).unwrap_or_else(|cause| {
        eprintln!("warden-check: {cause}");
        ExitCode::from(2)
    })
}
