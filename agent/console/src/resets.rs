//! What `/state/reset` says to whoever stands at the screen: a reset that waits, one that broke off, what the last one left undone.
//! The files are the helper's; here they are only read, and what cannot be read is not shown.

use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
struct Wish {
    scope: String,
}

#[derive(Deserialize)]
struct Entry {
    stage: String,
    record: Wish,
    #[serde(default)]
    remark: Option<String>,
}

#[derive(Deserialize)]
struct Journal {
    #[serde(default)]
    resets: Vec<Entry>,
}

/// Sentences about resets, from the files in `folder`.
#[must_use]
pub fn sentences(folder: &Path) -> Vec<String> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    told(&read("request"), &read("consumed"))
}

fn told(request: &str, journal: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if let Ok(wish) = serde_json::from_str::<Wish>(request) {
        lines.push(format!("A {} reset waits for the next start.", wish.scope));
    }
    let journal = serde_json::from_str::<Journal>(journal).unwrap_or(Journal { resets: Vec::new() });
    for entry in &journal.resets {
        match entry.stage.as_str() {
            "begun" => lines.push(format!("A {} reset broke off. Restart the machine; it is finished then.", entry.record.scope)),
            "handed" => lines.push("An admin password reset is due. Its code appears here when the agent runs.".to_owned()),
            _ => {}
        }
    }
    if let Some(remark) = journal.resets.last().and_then(|entry| entry.remark.as_ref()) {
        lines.push(format!("Last reset: {remark}"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn a_reset_that_waits_or_broke_off_is_told() {
        assert_eq!(told(r#"{"version":1,"scope":"factory","keep_models":true}"#, ""), ["A factory reset waits for the next start."]);
        let journal = r#"{"resets":[{"stage":"done","record":{"scope":"network"}},{"stage":"begun","record":{"scope":"factory"},"remark":"x"}]}"#;
        let lines = told("", journal);
        assert!(lines[0].contains("factory reset broke off") && lines[1] == "Last reset: x");
        assert!(told("torn {", "torn {").is_empty());
    }
}
