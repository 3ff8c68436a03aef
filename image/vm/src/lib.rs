//! Runs what the image builder made: a QEMU guest from the disk image, or a container from the root tree.
//!
//! In go a [`BuilderRoot`] (the folder that holds QEMU and the firmware), a description of the machine and the files to boot.
//! Out come a serial log that can be waited on, a command shell (test flavour only), QMP verbs, forwarded ports and CPU seconds.
//! Nothing here builds or changes an image: disks are always opened through a fresh overlay, and every guest dies with its handle.

mod builder_root;
mod container;
mod error;
mod guest;
mod lan;
mod machine;
mod patience;
mod qmp;
mod serial;
mod shell;
mod stall;

pub use builder_root::BuilderRoot;
pub use container::{Container, ContainerSpec, Ran};
pub use error::VmError;
pub use guest::Guest;
pub use lan::{INTERFACE, Lan};
pub use machine::{Boot, DirectBoot, Drive, Forward, Machine};
pub use patience::quiet;
pub use qmp::Qmp;
pub use serial::SerialLog;
pub use shell::{Reply, Shell};
pub use stall::PowerOn;
