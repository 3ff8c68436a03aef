//! The result file that stays on the stick. Pure: the outcome and the older file's text come in, the new text goes out.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use warden_domain::steps::Steps;

use crate::disk::DiskReport;

/// Name of the file on the stick's `WARDEN` partition.
pub const FILE: &str = "result.json";
/// No result file is longer, in bytes; a longer one is not looked into.
pub const MOST: usize = 256 * 1024;
/// Earlier outcomes that are kept.
const KEPT: usize = 10;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The disk starts LM Warden.
    Installed,
    /// Nothing was written to any disk.
    Refused,
    /// It broke off; the disk does not start.
    Failed,
}

/// What happened.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How it ended.
    pub outcome: Outcome,
    /// When it ended, by the machine's clock.
    pub at: Timestamp,
    /// Version of the installer and of what it installs.
    pub version: String,
    /// The engines the stick brings; empty when it carries none, and the box then cannot run a model.
    pub engines: Vec<String>,
    /// The installation's name, when an answer file gave one.
    pub install_id: Option<String>,
    /// The disk, when one was found.
    pub disk: Option<DiskReport>,
    /// The steps, when it came to them.
    pub steps: Option<Steps>,
    /// The sentence of a refusal or failure.
    pub failure: Option<String>,
}

/// The text of the result file. Outcomes of earlier starts are kept in short form, so that a stick left in does not hide that it
/// installed.
#[must_use]
pub fn render(report: &Report, before: Option<&str>) -> String {
    let mut earlier = Vec::new();
    if let Some(old) = before.and_then(|text| serde_json::from_str::<Value>(text).ok()).filter(Value::is_object) {
        earlier.push(json!({
            "outcome": old["outcome"], "at": old["at"], "install_id": old["install_id"], "serial": old["disk"]["serial"], "failure": old["failure"],
        }));
        earlier.extend(old["earlier"].as_array().into_iter().flatten().take(KEPT - 1).cloned());
    }
    let mut document = json!(report);
    document["format"] = json!(1);
    document["earlier"] = Value::Array(earlier);
    format!("{document:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcome: Outcome) -> Report {
        let failure = (outcome != Outcome::Installed).then(|| "A sentence.".to_owned());
        let steps = Some(crate::plan::steps());
        Report {
            outcome,
            at: Timestamp::UNIX_EPOCH,
            version: "1".into(),
            engines: Vec::new(),
            install_id: Some("one".into()),
            disk: None,
            steps,
            failure,
        }
    }

    #[test]
    fn a_refused_second_start_does_not_hide_the_first() {
        let first = render(&report(Outcome::Installed), None);
        let second: Value = serde_json::from_str(&render(&report(Outcome::Refused), Some(&first))).unwrap();
        assert_eq!(second["outcome"], "refused");
        assert_eq!(second["earlier"][0]["outcome"], "installed");
        assert_eq!(second["failure"], "A sentence.");
    }

    #[test]
    fn a_torn_result_file_is_replaced_and_the_list_stays_short() {
        let mut text = "{ torn".to_owned();
        for _ in 0..30 {
            text = render(&report(Outcome::Refused), Some(&text));
        }
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["earlier"].as_array().unwrap().len(), KEPT);
        assert!(text.len() < 16 * 1024);
    }
}
