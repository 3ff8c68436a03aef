//! Updates: `Idle -> Available -> Downloading -> Verified -> Installing -> Staged -> Trial -> Confirmed | RolledBack`. Each step is written and
//! on the medium before it is taken; a start after a power cut at any point finds a named state and goes on or backs out.
//!
//! Pure, values in and values out: [`machine`] (which step may follow), [`start`] (what a start makes of the record), [`policy`] (what is
//! done without being asked), [`preflight`] (what must hold before). Around them the driver: `http`, `download` and `writer` fetch, `work` asks
//! the channel and goes through the steps, `install` talks to RAUC, `proven` keeps the other slot until the running one was found good, `trial` restarts and waits for the health gate, `offline`, `uploads` and
//! `additions` take bundles apart, `schedule` is the clock, `view` is the port that pages and API use. What is believed is decided in
//! `warden-trust` alone; this crate never marks a slot.

mod additions;
mod checks;
mod download;
mod fault;
mod host;
mod http;
mod install;
mod keep;
pub mod machine;
mod offline;
pub mod policy;
pub mod preflight;
mod proven;
mod room;
mod schedule;
mod settle;
pub mod start;
#[cfg(test)]
mod testing;
mod trial;
mod trust;
mod uploads;
mod view;
mod work;
mod writer;

pub use checks::{BootIssues, UpdateIssues};
pub use download::Rules;
pub use fault::Fault;
pub use host::{BeforeFacts, Build, Host, Machine, Places};
pub use http::channel_address;
pub use offline::Sticks;
pub use room::{Parts, UpdateRoom};
pub use uploads::PIECE_MAX;
pub use warden_update_record as record;
