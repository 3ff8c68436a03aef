//! What the properties of an engine's unit mean.
//!
//! Properties in, a state or a reason out. Pure.

use std::collections::HashMap;

use warden_domain::model::StateReason;
use zbus::{OwnedVariant, Variant};

use crate::verdict::{self, End};

/// The state of a unit at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// `active`, `activating`, `deactivating`, `inactive`, `failed`…
    pub(super) active: String,
    /// InvocationID in hex; `None` when it never ran.
    pub(super) invocation: Option<String>,
    /// A start or stop is waiting or under way.
    pub(super) has_job: bool,
}

impl Unit {
    pub(super) fn read(properties: &HashMap<String, OwnedVariant>) -> Self {
        let invocation = properties.get("InvocationID").and_then(bytes_of).filter(|id| !id.is_empty()).map(hex::encode);
        let job = properties.get("Job").map(|job| match &**job {
            Variant::Structure(parts) => parts.fields().first().is_some_and(|id| !matches!(id, Variant::U32(0))),
            _ => false,
        });
        Self { active: properties.get("ActiveState").and_then(text_of).unwrap_or_default(), invocation, has_job: job.unwrap_or(false) }
    }

    /// Whether processes of it may run.
    pub(super) fn lives(&self) -> bool {
        matches!(self.active.as_str(), "active" | "activating" | "reloading" | "deactivating")
    }
}

/// The unit's control group; `None` while it has none.
pub(super) fn group(properties: &HashMap<String, OwnedVariant>) -> Option<String> {
    properties.get("ControlGroup").and_then(text_of).filter(|group| !group.is_empty())
}

/// Why a unit ended, from its service properties and the engine's log.
pub(super) fn reason(properties: &HashMap<String, OwnedVariant>, lines: &[String]) -> StateReason {
    let result = properties.get("Result").and_then(text_of).unwrap_or_default();
    let status = properties.get("ExecMainStatus").and_then(number_of);
    let code = properties.get("ExecMainCode").and_then(number_of);
    let lines = || lines.iter().map(String::as_str);
    if let Some(reason) = refused_by_system(&result, status) {
        return reason;
    }
    if result == "oom-kill" {
        return told(
            "out_of_memory",
            "The engine was ended because memory ran out.",
            "Choose a shorter context or fewer slots, unload another model, or use a smaller model.",
        );
    }
    if status == Some(78)
        && let Some(sentence) = lines().rev().find(|line| line.starts_with("launch:"))
    {
        return told(
            "launch_refused",
            &format!("The launcher refused to start the engine. {sentence}"),
            "Load the model again; if it stays so, restart the appliance.",
        );
    }
    // 1 = exited, 2 = killed, 3 = dumped core: the codes of waitid.
    let end = match (code, status) {
        (Some(1), Some(status)) => End::Code(status),
        (Some(2 | 3), Some(status)) => End::Signal(status),
        _ => End::Unseen,
    };
    verdict::reason(end, lines())
}

/// Ends that came from the system manager before the engine ran at all. The numbers are its own exit statuses.
fn refused_by_system(result: &str, status: Option<i32>) -> Option<StateReason> {
    const HINT_PACK: &str = "Install the engine pack again from a signed bundle.";
    match (result, status) {
        ("exit-code", Some(226)) => Some(told(
            "pack_refused",
            "The system refused the engine pack: its signature or its contents could not be verified, or it cannot be mounted.",
            HINT_PACK,
        )),
        ("resources", _) => {
            Some(told("pack_refused", "The system could not set up the engine: the engine pack cannot be mounted or memory is short.", HINT_PACK))
        }
        ("exit-code", Some(203)) => Some(told(
            "pack_refused",
            "The launcher could not be started inside the engine pack: the pack is not laid out as it should be.",
            HINT_PACK,
        )),
        ("exit-code", Some(number @ 200..=245)) => Some(told(
            "sandbox_failed",
            &format!("The system could not set up the engine's sandbox (status {number})."),
            "Restart the appliance. If it stays so, the journal says more.",
        )),
        _ => None,
    }
}

fn told(code: &str, message: &str, hint: &str) -> StateReason {
    StateReason { code: code.to_owned(), message: message.to_owned(), hint: Some(hint.to_owned()) }
}

fn text_of(value: &OwnedVariant) -> Option<String> {
    match &**value {
        Variant::Str(text) => Some(text.to_string()),
        _ => None,
    }
}

fn number_of(value: &OwnedVariant) -> Option<i32> {
    match &**value {
        Variant::I32(number) => Some(*number),
        _ => None,
    }
}

fn bytes_of(value: &OwnedVariant) -> Option<Vec<u8>> {
    match &**value {
        Variant::Array(array) => array.iter().map(|item| if let Variant::U8(byte) = item { Some(*byte) } else { None }).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(items: &[(&str, Variant<'_>)]) -> HashMap<String, OwnedVariant> {
        items.iter().map(|(name, value)| ((*name).to_owned(), value.try_to_owned().unwrap())).collect()
    }

    fn ended(result: &str, code: i32, status: i32, log: &str) -> StateReason {
        let lines: Vec<String> = log.lines().map(str::to_owned).collect();
        reason(
            &properties(&[("Result", Variant::from(result)), ("ExecMainCode", Variant::from(code)), ("ExecMainStatus", Variant::from(status))]),
            &lines,
        )
    }

    #[test]
    fn an_unsigned_pack_is_told_as_that() {
        let reason = ended("exit-code", 1, 226, "");
        assert_eq!(reason.code, "pack_refused");
        assert!(reason.message.contains("signature"));
    }

    #[test]
    fn the_sentence_of_the_launcher_reaches_the_page() {
        let reason = ended("exit-code", 1, 78, "launch: the launch spec has format 9");
        assert!(reason.message.contains("format 9"), "{reason:?}");
    }

    #[test]
    fn deaths_are_told_apart() {
        assert_eq!(ended("signal", 2, 9, "").code, "engine_killed");
        assert_eq!(ended("core-dump", 3, 11, "").code, "engine_crashed");
        assert_eq!(ended("oom-kill", 2, 9, "").code, "out_of_memory");
        assert_eq!(ended("exit-code", 1, 1, "0.00.000.001 E x: std::bad_alloc").code, "out_of_memory");
        assert_eq!(ended("success", 1, 0, "").code, "engine_stopped");
        assert_eq!(reason(&HashMap::new(), &[]).code, "engine_gone");
    }

    #[test]
    fn a_unit_is_read_from_its_properties() {
        let unit = Unit::read(&properties(&[
            ("ActiveState", Variant::from("active")),
            ("InvocationID", Variant::from(vec![0xabu8, 0x01])),
            ("Job", Variant::from((0u32, zbus::ObjectPath::try_from("/").unwrap()))),
        ]));
        assert_eq!(unit, Unit { active: "active".to_owned(), invocation: Some("ab01".to_owned()), has_job: false });
        assert!(unit.lives());
        assert!(!Unit::read(&HashMap::new()).lives());
    }
}
