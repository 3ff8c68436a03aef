//! Boot slots as counted loader entries, one small file per slot on the EFI system partition. `entry` says what a file name and its
//! text mean, `choice` decides what an installer's question or order comes to, `folder` reads and durably changes the entries, `handler`
//! and `kernel` are the step before an install. Used by the updater's backend program and by the initrd; never touches a slot's data.

pub mod choice;
pub mod entry;
pub mod folder;
pub mod handler;
pub mod kernel;
