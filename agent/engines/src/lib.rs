//! Running engines: what to say to them, how to read what they say, and who starts and stops them.
//!
//! In: a plan for one replica. Out: a launch with an identity and an endpoint, and honest observations of it. The adapter (`llama`) is
//! pure; the two runners are `ProcessEngines` (detached process groups on a dev machine) and `SystemdEngines` (the appliance's unit
//! template over D-Bus). Engines are never children in the sense that they would end with the agent. This crate does not speak to
//! clients and does not know what is wanted.

mod activity;
pub mod llama;
mod log;
mod outlook;
mod probe;
mod process;
mod systemd;
mod verdict;

pub use process::{ProcessConfig, ProcessEngines};
pub use systemd::{SystemdConfig, SystemdEngines};
