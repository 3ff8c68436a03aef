//! Installing LM Warden from its stick. What may be installed where is decided in pure modules ([`answer`], [`choose`], [`layout`],
//! [`network`], [`plan`], [`report`]); what reads and writes is in thin ones beside them. A disk becomes bootable by the very last write, so a power
//! cut before it leaves a disk that no firmware starts and a stick that installs again.

pub mod answer;
pub mod boot_files;
pub mod choose;
pub mod data;
pub mod disk;
pub mod install;
pub mod layout;
pub mod mounts;
pub mod network;
pub mod plan;
pub mod report;
pub mod secureboot;
pub mod seed;
pub mod stick;
pub mod sysfs;
pub mod terminal;
pub mod tools;
pub mod write;
