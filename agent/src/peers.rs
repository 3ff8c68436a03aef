//! How many connections each client network holds on a listener, so that one machine cannot take every place.
//!
//! In: addresses of peers that come and go. Out: a place, or none. Loopback is not counted: what runs on the box is ours.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use warden_domain::access::ClientAddr;

/// Connections per client network.
#[derive(Clone, Debug)]
pub struct Peers {
    most: usize,
    own_too: bool,
    held: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection's place; dropped with it.
#[derive(Debug)]
pub struct Place {
    network: Option<IpAddr>,
    held: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Peers {
    /// At most `most` connections for one network.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, own_too: false, held: Arc::default() }
    }

    /// The same with loopback counted, for tests that have nothing else.
    #[cfg(test)]
    pub fn counting_all(most: usize) -> Self {
        Self { own_too: true, ..Self::new(most) }
    }

    /// A place for a connection of this peer; `None` when its network holds its share already.
    #[must_use]
    pub fn place(&self, peer: IpAddr) -> Option<Place> {
        let network = ClientAddr(peer).network();
        if peer.to_canonical().is_loopback() && !self.own_too {
            return Some(Place { network: None, held: self.held.clone() });
        }
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let count = held.entry(network).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Place { network: Some(network), held: self.held.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(network) = self.network else { return };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = held.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                held.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_machine_never_holds_more_than_its_share_and_others_still_get_in() {
        let peers = Peers::new(3);
        let held: Vec<_> = (0..3).map(|_| peers.place(ip("10.0.0.9")).unwrap()).collect();
        assert!(peers.place(ip("10.0.0.9")).is_none());
        assert!(peers.place(ip("::ffff:10.0.0.9")).is_none(), "a dual-stack socket says it so");
        assert!(peers.place(ip("10.0.0.8")).is_some());
        drop(held);
        assert!(peers.place(ip("10.0.0.9")).is_some());
        assert!(peers.held.lock().unwrap().is_empty(), "nothing is remembered of whoever left");
    }

    #[test]
    fn a_machine_with_many_ipv6_addresses_is_one_and_the_box_itself_is_not_counted() {
        let peers = Peers::new(1);
        let _held = peers.place(ip("2001:db8::1")).unwrap();
        assert!(peers.place(ip("2001:db8::2")).is_none());
        let _own: Vec<_> = (0..9).map(|_| peers.place(ip("127.0.0.1")).unwrap()).collect();
    }
}
