//! What agent, health gate and initrd tell each other about an update, across restarts and slots: small JSON files on the state partition.
//!
//! | File | Written by | Says |
//! |---|---|---|
//! | `/state/update/record.json` | agent | [`Record`]: where the update stands; written before each step is taken |
//! | `/state/update/before.json` | agent | [`Before`]: how the box was right before it restarted into the trial |
//! | `/state/health/verdict.json` | health gate | [`Verdict`]: whether the slot on trial is good, and why not; written before it marks |
//! | `/state/boot/fallback.json` | initrd | [`Fallback`]: it gave a slot up by its own count |
//!
//! Two releases read the same files: the one on trial and the one that is fallen back to. So fields are only ever added, with a default, and
//! unknown ones are passed over. Every file is written whole, synced and renamed; a reader sees the old or the new one, never a part.
//! Nothing here decides anything but [`standing`]: which of the four ways a boot relates to the record.

mod before;
mod file;
mod record;
mod standing;
mod system;
mod verdict;

pub use before::{Before, ServedModel};
pub use file::{Document, FileError, MAX_BYTES, read, write};
pub use record::{Asked, Attempt, EntryRef, Origin, Phase, Reason, Record, Running, TransactionId};
pub use standing::{Standing, standing};
pub use system::{boot_id, counted, image_version, machine_id, slot_of};
pub use verdict::{Check, CheckOutcome, Fallback, Outcome, Verdict};
pub use warden_bootslot::entry::Slot;

/// Folder of the agent's documents on the appliance.
pub const UPDATE_DIR: &str = "/state/update";
/// Folder of the health gate's document on the appliance.
pub const HEALTH_DIR: &str = "/state/health";
/// Folder of the initrd's document on the appliance.
pub const BOOT_DIR: &str = "/state/boot";
