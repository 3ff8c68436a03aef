//! Problems that are found, shown, fixed and reported: each condition is really caused, seen on API and page, and gone once it is cured.

use crate::cases::{Case, Tier, case};
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

mod container;
mod host;
mod receiver;
mod small_disk;
mod watch;
mod webhook;

/// The rows of the table.
pub const CASES: &[Case] = &[case("alert-webhook", Tier::Host, webhook::run), case("issues-ten", Tier::Nspawn, ten)];

/// Disks, models, engines and alerts on this machine; services and network in a container with the image's root.
fn ten(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut seen = host::run(stage, task, result)?;
    seen.extend(container::run(stage, task, result)?);
    #[allow(clippy::cast_precision_loss, reason = "a handful")]
    result.figure("issue_codes_caused", seen.len() as f64);
    result.expect(
        seen.len() >= 10,
        format!("{} kinds of issues were caused and cured: {}", seen.len(), seen.iter().cloned().collect::<Vec<_>>().join(", ")),
    );
    Ok(())
}
