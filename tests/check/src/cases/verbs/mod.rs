//! The cases of the list `box`: everything the appliance itself promises, one file or folder per room.

use super::Case;

mod install;
mod issues;
mod network;
mod screen;
mod storage;
mod tls;

/// Ends what cases shared by themselves.
pub fn strike() {
    install::strike();
    storage::strike();
}

/// All of them, grouped by what shares a machine.
pub fn table() -> Vec<Case> {
    [network::CASES, tls::CASES, screen::CASES, storage::CASES, issues::CASES, install::CASES].concat()
}
