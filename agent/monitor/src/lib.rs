//! What is wrong with the box, and who is told.
//!
//! `issues`: small checks look at facts at a slow beat and when news come; what they find is one list of issues for pages, API, local
//! screen and alerts, kept in the store so that a restart neither forgets nor repeats. `alerts`: a signed webhook that tells of each
//! appearance once. `facts` are thin readers of the system; every decision is a function of what they return. This room never starts
//! an engine and never changes a disk: fixes go through the ports of the rooms that own the thing.

mod alerts;
mod facts;
mod issues;
mod room;

pub use issues::checks::Appliance;
pub use room::{Monitor, MonitorParts};
