//! Slows down guessing, per client network, and locks nobody out.
//!
//! Pure state: in go admissions and failures, out come waiting times. A wrong answer is held back for 0.5 to 3 s; a right one is
//! never held back. What is refused (429) are further tries of a network whose wrong tries already fill its places in the waiting
//! room: without that, trying in parallel would defeat the waiting. A network without recent failures is never refused, so a
//! flood from elsewhere does not keep the admin out. Memory is bounded.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use warden_domain::access::ClientAddr;

/// Wrong answers held back at the same time, over all networks.
const ROOM: u32 = 32;
/// Of these, for one network.
const ROOM_EACH: u32 = 4;
/// Longest hold.
const LONGEST: Duration = Duration::from_secs(3);
/// First hold.
const SHORTEST: Duration = Duration::from_millis(500);
/// Quiet time after which failures are forgotten.
const FORGET: Duration = Duration::from_secs(15 * 60);
/// Networks remembered.
const NETWORKS: usize = 10_000;

/// An IPv4 address, or the /64 of an IPv6 address (one household or one attacker has a whole /64).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network(IpAddr);

impl From<ClientAddr> for Network {
    fn from(client: ClientAddr) -> Self {
        Self(client.network())
    }
}

struct Mark {
    failures: u32,
    waiting: u32,
    last: Instant,
}

/// Who guessed wrong lately and who is waiting.
#[derive(Default)]
pub(crate) struct Slowdown {
    marks: HashMap<Network, Mark>,
    waiting: u32,
}

impl Slowdown {
    /// Whether a try of this network may be looked at now; otherwise when to come again.
    pub(crate) fn admit(&mut self, network: Network, now: Instant) -> Result<(), Duration> {
        let Some(mark) = self.marks.get(&network) else { return Ok(()) };
        if mark.waiting == 0 && now.duration_since(mark.last) >= FORGET {
            self.marks.remove(&network);
            return Ok(());
        }
        if mark.waiting >= ROOM_EACH || (self.waiting >= ROOM && mark.waiting > 0) { Err(LONGEST) } else { Ok(()) }
    }

    /// Notes a wrong try. The answer is how long to hold it back; call `released` afterwards exactly once.
    pub(crate) fn failed(&mut self, network: Network, now: Instant) -> Duration {
        if self.marks.len() >= NETWORKS && !self.marks.contains_key(&network) {
            self.make_room(now);
        }
        let mark = self.marks.entry(network).or_insert(Mark { failures: 0, waiting: 0, last: now });
        if mark.waiting == 0 && now.duration_since(mark.last) >= FORGET {
            mark.failures = 0;
        }
        mark.last = now;
        mark.waiting += 1;
        self.waiting += 1;
        let hold = LONGEST.min(SHORTEST * 2u32.saturating_pow(mark.failures.min(8)));
        mark.failures = mark.failures.saturating_add(1);
        hold
    }

    /// A held-back answer went out, or its client left.
    pub(crate) fn released(&mut self, network: Network) {
        self.waiting = self.waiting.saturating_sub(1);
        if let Some(mark) = self.marks.get_mut(&network) {
            mark.waiting = mark.waiting.saturating_sub(1);
        }
    }

    /// Somebody of this network knew the answer: its wrong tries are forgiven.
    pub(crate) fn succeeded(&mut self, network: Network) {
        if let Some(mark) = self.marks.get_mut(&network) {
            mark.failures = 0;
        }
    }

    fn make_room(&mut self, now: Instant) {
        self.marks.retain(|_, mark| mark.waiting > 0 || now.duration_since(mark.last) < FORGET);
        if self.marks.len() >= NETWORKS {
            let oldest = self.marks.iter().filter(|(_, m)| m.waiting == 0).min_by_key(|(_, m)| m.last).map(|(n, _)| *n);
            if let Some(oldest) = oldest {
                self.marks.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Network {
        ClientAddr(text.parse().unwrap()).into()
    }

    #[test]
    fn guessing_gets_slower_up_to_three_seconds() {
        let (mut s, now, a) = (Slowdown::default(), Instant::now(), net("10.0.0.1"));
        let holds: Vec<u128> = (0..5)
            .map(|_| {
                let hold = s.failed(a, now).as_millis();
                s.released(a);
                hold
            })
            .collect();
        assert_eq!(holds, [500, 1000, 2000, 3000, 3000]);
    }

    #[test]
    fn guessing_in_parallel_does_not_get_around_the_waiting() {
        let (mut s, now, a) = (Slowdown::default(), Instant::now(), net("10.0.0.1"));
        for _ in 0..ROOM_EACH {
            s.admit(a, now).unwrap();
            s.failed(a, now);
        }
        assert!(s.admit(a, now).is_err());
        s.released(a);
        assert!(s.admit(a, now).is_ok());
    }

    #[test]
    fn a_flood_from_many_networks_does_not_keep_the_admin_out() {
        let (mut s, now) = (Slowdown::default(), Instant::now());
        for i in 0..40u8 {
            s.failed(net(&format!("10.0.0.{i}")), now);
        }
        assert!(s.admit(net("10.0.0.1"), now).is_err());
        assert!(s.admit(net("192.168.1.7"), now).is_ok());
    }

    #[test]
    fn an_ipv6_attacker_cannot_change_address_inside_a_network_to_be_forgotten() {
        assert_eq!(net("2001:db8:1:2::1"), net("2001:db8:1:2:ffff::9"));
        assert_ne!(net("2001:db8:1:2::1"), net("2001:db8:1:3::1"));
        assert_eq!(net("::ffff:10.0.0.1"), net("10.0.0.1"));
    }

    #[test]
    fn wrong_tries_are_forgiven_after_a_right_one_and_forgotten_with_time() {
        let (mut s, now, a) = (Slowdown::default(), Instant::now(), net("10.0.0.1"));
        for _ in 0..3 {
            s.failed(a, now);
            s.released(a);
        }
        s.succeeded(a);
        assert_eq!(s.failed(a, now), SHORTEST);
        s.released(a);
        s.failed(a, now);
        s.released(a);
        assert_eq!(s.failed(a, now + FORGET), SHORTEST);
    }

    #[test]
    fn memory_stays_bounded_under_a_flood_of_addresses() {
        let (mut s, now) = (Slowdown::default(), Instant::now());
        for i in 0..12_000u32 {
            let a = Network(IpAddr::V4(i.into()));
            s.failed(a, now);
            s.released(a);
        }
        assert!(s.marks.len() <= NETWORKS);
    }
}
