//! The evidence file of a run: what was executed, when, with which outcome and figures.
//!
//! In: what the harness saw. Out: `target/evidence/<check>.json` for a complete run, `<check>.partial.json` for any other, so that a
//! run of a few ids never stands where a complete one is looked for. Written to a temporary file, synced, then renamed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Evidence {
    /// The name of the check.
    pub check: String,
    /// True when every id of the list was executed in this run.
    pub complete: bool,
    /// True when the run is complete, every id passed and every threshold is met.
    pub green: bool,
    /// The commit of the tree, when git knows one; `-dirty` is added when files differ from it.
    pub commit: Option<String>,
    /// When it began, RFC 3339 in UTC.
    pub start: String,
    /// When it ended.
    pub end: String,
    /// Thresholds with what was measured.
    pub thresholds: BTreeMap<String, ThresholdEvidence>,
    /// Every id of the list; those that were not executed have no `start`.
    pub cases: Vec<CaseEvidence>,
    /// What keeps the run from being green, one sentence each.
    pub complaints: Vec<String>,
}

/// One threshold.
#[derive(Clone, Debug, Serialize)]
pub struct ThresholdEvidence {
    /// The number of the list.
    pub limit: f64,
    /// What was measured; `null` when nobody measured it.
    pub measured: Option<f64>,
}

/// One id.
#[derive(Clone, Debug, Serialize)]
pub struct CaseEvidence {
    /// Its name.
    pub id: String,
    /// The command that runs it alone.
    pub command: String,
    /// 0 passed, 1 failed; `null` when it was not executed.
    pub exit: Option<i32>,
    /// When it began, RFC 3339 in UTC.
    pub start: Option<String>,
    /// When it ended.
    pub end: Option<String>,
    /// How long it took, by a clock that is never set.
    pub seconds: Option<f64>,
    /// Measured values by name.
    pub figures: BTreeMap<String, f64>,
    /// What was seen.
    pub sentences: Vec<String>,
    /// Virtual machines and containers that took part.
    pub machines: Vec<MachineEvidence>,
    /// The log.
    pub log: Option<PathBuf>,
}

/// A machine that took part in a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineEvidence {
    /// `production` or `test` for an image, `container` for a booted root.
    pub flavour: String,
    /// The kernel's boot id as the guest told it, or an identity made at power-on when the guest has no way to tell.
    pub boot_id: String,
    /// SHA-256 of the files it was made of, by file name.
    pub hashes: BTreeMap<String, String>,
    /// Its serial log.
    pub serial_log: Option<PathBuf>,
}

/// The file a run's evidence belongs in.
#[must_use]
pub fn file_name(check: &str, complete: bool, sabotage: Option<&str>) -> String {
    match (sabotage, complete) {
        (Some(id), _) => format!("{check}.sabotage-{id}.json"),
        (None, true) => format!("{check}.json"),
        (None, false) => format!("{check}.partial.json"),
    }
}

/// Writes the evidence so that a reader sees the old file or the new one, never a part.
///
/// # Errors
/// A sentence that names the file.
pub fn write(folder: &Path, name: &str, evidence: &Evidence) -> Result<PathBuf, String> {
    let path = folder.join(name);
    let said = |e: std::io::Error| format!("cannot write the evidence {}: {e}", path.display());
    let mut text = serde_json::to_vec_pretty(evidence).map_err(|e| format!("the evidence cannot be written as JSON: {e}"))?;
    text.push(b'\n');
    warden_durable::write(&path, &text).map_err(said)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_a_few_ids_never_takes_the_place_of_a_complete_one() {
        assert_eq!(file_name("slice", true, None), "slice.json");
        assert_ne!(file_name("slice", false, None), "slice.json");
        assert_ne!(file_name("slice", true, Some("x")), "slice.json");
    }
}
