//! Resets that somebody at the machine (or an admin) asked for: asked now, done once at the next start, before the agent.
//!
//! `scope` says who may ask for what, `record` what a wish looks like and to which machine it is bound, `journal` what was begun and
//! done, `decide` what a start has to do about it; all of them pure. `desk` keeps the files, `sweep` does the removing, `consumer`
//! puts both in the one order that survives a power cut.

pub mod consumer;
pub mod decide;
pub mod desk;
pub mod journal;
pub mod record;
pub mod scope;
pub mod sweep;
