//! The disk manager's calls that are used here, typed; and what its errors mean.

use std::{collections::HashMap, time::Duration};

use warden_domain::{Problem, ProblemKind};
use zbus::{OwnedObjectPath, Variant, proxy};

/// Its name on the system bus.
pub(super) const NAME: &str = "org.freedesktop.UDisks2";
/// Its objects begin with this.
pub(super) const ROOT: &str = "/org/freedesktop/UDisks2";
/// Block devices begin with this.
pub(super) const BLOCKS: &str = "/org/freedesktop/UDisks2/block_devices/";
/// Drives begin with this.
pub(super) const DRIVES: &str = "/org/freedesktop/UDisks2/drives/";

/// Options of a call.
pub(super) type Options<'a> = HashMap<&'a str, Variant<'a>>;

#[proxy(interface = "org.freedesktop.UDisks2.Block", default_service = "org.freedesktop.UDisks2", assume_defaults = false)]
pub(super) trait Block {
    fn format(&self, kind: &str, options: Options<'_>) -> zbus::Result<()>;
}

#[proxy(interface = "org.freedesktop.UDisks2.PartitionTable", default_service = "org.freedesktop.UDisks2", assume_defaults = false)]
pub(super) trait PartitionTable {
    #[allow(clippy::too_many_arguments, reason = "the disk manager's own signature")]
    fn create_partition_and_format(
        &self,
        offset: u64,
        size: u64,
        kind: &str,
        name: &str,
        options: Options<'_>,
        format: &str,
        format_options: Options<'_>,
    ) -> zbus::Result<OwnedObjectPath>;
}

#[proxy(interface = "org.freedesktop.UDisks2.Filesystem", default_service = "org.freedesktop.UDisks2", assume_defaults = false)]
pub(super) trait Filesystem {
    fn mount(&self, options: Options<'_>) -> zbus::Result<String>;
    fn unmount(&self, options: Options<'_>) -> zbus::Result<()>;
}

/// Options that say: there is nobody to ask.
pub(super) fn quietly<'a>(more: impl IntoIterator<Item = (&'a str, Variant<'a>)>) -> Options<'a> {
    std::iter::once(("auth.no_user_interaction", Variant::from(true))).chain(more).collect()
}

/// The last word of an error's name, such as `NotAuthorized` or `DeviceBusy`; empty for faults of the bus itself.
pub(super) fn kind_of(cause: &zbus::Error) -> &str {
    match cause {
        zbus::Error::MethodError(name, ..) => name.as_str().rsplit('.').next().unwrap_or_default(),
        _ => "",
    }
}

/// A call that failed, as a sentence. `what` completes "The disk manager did not …".
pub(super) fn said(what: &str, cause: &zbus::Error) -> Problem {
    let kind = kind_of(cause);
    if kind.starts_with("NotAuthorized") {
        return Problem::new(
            ProblemKind::Forbidden,
            format!("The system does not allow to {what}: the disk belongs to the system, or is no plain disk."),
        )
        .hint("Choose another disk.");
    }
    if kind.ends_with("Busy") || kind == "AlreadyMounted" {
        return Problem::new(ProblemKind::Conflict, format!("The disk manager could not {what}: the disk is in use."))
            .hint("Unload the models on it and end imports from it, then try again.");
    }
    let words = match cause {
        zbus::Error::MethodError(_, Some(text), _) => text.clone(),
        other => other.to_string(),
    };
    let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    Problem::new(ProblemKind::SystemService, format!("The disk manager could not {what}: {}.", words.trim_end_matches('.')))
        .hint("Try again. If it stays so, the disk may be failing: try another one.")
        .retry_after(Duration::from_secs(10))
}

/// A call that did not come back in time. `done` completes "The disk was not …".
pub(super) fn too_slow(done: &str) -> Problem {
    Problem::new(ProblemKind::SystemService, format!("The disk was not {done} in time: it, or the disk manager, does not answer."))
        .hint("Unplug it and plug it in again; if it stays so, restart the appliance.")
}
