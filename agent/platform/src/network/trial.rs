//! A change under trial, and the rules of its end. Pure: where a confirmation may come in, what is left after a restart.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use warden_domain::network::LastChange;

/// What the store keeps of a change under trial, so that an agent that comes back understands what it finds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// The port.
    pub interface: String,
    /// The service's checkpoint.
    pub checkpoint: String,
    /// The new profile.
    pub uuid: String,
    /// The start of the system in which it was begun; checkpoints do not outlive it.
    pub boot: String,
    /// When it was begun.
    pub begun: Timestamp,
}

/// What an agent that comes back finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The same start of the system.
    pub same_boot: bool,
    /// The checkpoint is still there.
    pub checkpoint: bool,
    /// A profile with the new one's UUID is there.
    pub profile: bool,
    /// That profile lies on the disk: only a confirmation puts it there.
    pub saved: bool,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// The change is still being tried: undo it, since nobody can confirm any more.
    Undo,
    /// It was kept; the agent died before it could say so.
    Kept,
    /// The network service undid it, or the power went.
    Undone,
}

/// Decides about a change that an agent before this one began.
#[must_use]
pub const fn leftover(found: Found) -> Leftover {
    match (found.same_boot && found.checkpoint, found.profile, found.saved) {
        (true, _, _) => Leftover::Undo,
        (false, true, true) => Leftover::Kept,
        // The network service lost its checkpoint (it was restarted) and kept the profile, which nobody confirmed.
        (false, true, false) => Leftover::Undo,
        (false, false, _) => Leftover::Undone,
    }
}

/// How a leftover ends in the document.
#[must_use]
pub fn ending(record: &TrialRecord, what: Leftover, now: Timestamp) -> LastChange {
    let sentence = match what {
        Leftover::Kept => "The change was confirmed and is kept.",
        Leftover::Undo => "The agent was restarted while the change waited for its confirmation, so the old settings are back. Apply it again.",
        Leftover::Undone => {
            "The change was not confirmed before the agent or the box stopped, so the old settings are back. Apply it again and confirm it in time."
        }
    };
    LastChange { interface: record.interface.clone(), at: now, kept: what == Leftover::Kept, sentence: sentence.to_owned() }
}

/// Where a confirmation may come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doors {
    /// The fixed addresses that were asked for.
    pub fixed: Vec<IpAddr>,
    /// The address on which the change was asked for, when it belongs to another port than the one that changes.
    pub aside: Option<IpAddr>,
}

impl Doors {
    /// For a change that was asked for on `arrived_on`; `others` are the addresses of the ports that do not change.
    #[must_use]
    pub fn new(fixed: Vec<IpAddr>, others: &[IpAddr], arrived_on: Option<IpAddr>) -> Self {
        let aside = arrived_on.map(|ip| ip.to_canonical()).filter(|ip| others.contains(ip));
        Self { fixed, aside }
    }

    /// Whether a confirmation that came in on `on` shows that the console can be reached after the change. `present` are the addresses
    /// the port has now, with the new settings.
    #[must_use]
    pub fn open(&self, on: Option<IpAddr>, present: &[IpAddr]) -> bool {
        let Some(on) = on.map(|ip| ip.to_canonical()) else { return false };
        self.fixed.contains(&on) || self.aside == Some(on) || present.contains(&on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_confirmation_counts_only_where_it_shows_that_the_console_is_reached() {
        let doors = Doors::new(vec![ip("10.0.0.50")], &[], Some(ip("10.0.0.5")));
        assert!(doors.open(Some(ip("10.0.0.50")), &[]));
        assert!(doors.open(Some(ip("::ffff:10.0.0.50")), &[]), "a dual-stack socket says it so");
        assert!(!doors.open(Some(ip("10.0.0.5")), &[ip("10.0.0.50")]), "the old address");
        assert!(!doors.open(Some(ip("127.0.0.1")), &[ip("10.0.0.50")]));
        assert!(!doors.open(None, &[ip("10.0.0.50")]), "unknown is not good enough");
    }

    #[test]
    fn an_address_from_dhcp_is_a_door_once_it_is_there() {
        let doors = Doors::new(vec![], &[], Some(ip("10.0.0.5")));
        assert!(doors.open(Some(ip("10.0.0.77")), &[ip("10.0.0.77")]));
        assert!(!doors.open(Some(ip("10.0.0.5")), &[ip("10.0.0.77")]));
    }

    #[test]
    fn a_change_of_a_second_port_may_be_confirmed_where_it_was_asked_for() {
        let doors = Doors::new(vec![ip("10.9.0.1")], &[ip("10.0.0.5")], Some(ip("10.0.0.5")));
        assert!(doors.open(Some(ip("10.0.0.5")), &[]));
    }

    #[test]
    fn a_restart_in_the_window_undoes_and_a_power_cut_is_understood() {
        let found = |same_boot, checkpoint, profile| leftover(Found { same_boot, checkpoint, profile, saved: profile && !checkpoint });
        assert_eq!(found(true, true, true), Leftover::Undo);
        assert_eq!(found(true, true, false), Leftover::Undo);
        assert_eq!(found(true, false, true), Leftover::Kept);
        assert_eq!(found(true, false, false), Leftover::Undone);
        assert_eq!(found(false, true, false), Leftover::Undone, "a checkpoint of another start is not ours");
        assert_eq!(found(false, false, true), Leftover::Kept);
    }

    #[test]
    fn a_profile_that_nobody_confirmed_is_not_kept_because_the_network_service_forgot_its_checkpoint() {
        let stray = Found { same_boot: true, checkpoint: false, profile: true, saved: false };
        assert_eq!(leftover(stray), Leftover::Undo);
    }
}
