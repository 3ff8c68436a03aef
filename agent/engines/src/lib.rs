//! Running engines: what to say to them, how to read what they say, and who starts and stops them.
//!
//! In: a plan for one replica. Out: a launch with an identity and an endpoint, and honest observations of it. What differs between llama.cpp
//! and vLLM is in `adapter`, which is pure but for the questions to a running engine; the two runners are `ProcessEngines` (detached process
//! groups on a dev machine) and `SystemdEngines` (the appliance's unit template over D-Bus). Engines are never children in the sense that
//! they would end with the agent. This crate does not speak to clients and does not know what is wanted.

mod activity;
mod adapter;
mod cards;
mod cause;
mod extra;
mod llama;
mod log;
mod machine;
mod metrics;
mod outlook;
mod probe;
mod process;
mod systemd;
mod verdict;
mod vllm;

pub use extra::check_extra_args;
pub use llama::memory as llama_memory;
pub use process::{ProcessConfig, ProcessEngines};
pub use systemd::{SystemdConfig, SystemdEngines};
