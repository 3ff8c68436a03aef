//! Whether another machine already has an IPv4 address, asked without any privilege: a datagram to the address makes the kernel ask the
//! network for its owner, and the kernel's table then says who answered. Works for addresses of a network the box is in now; the network
//! service looks once more, for any network, before it takes an address into use.

use std::{
    net::{Ipv4Addr, UdpSocket},
    time::Duration,
};

const TABLE: &str = "/proc/net/arp";
/// Answers come within milliseconds; a busy machine gets more.
const PATIENCE: Duration = Duration::from_millis(1200);
const LOOK: Duration = Duration::from_millis(50);
/// An entry from before may be of a machine that left: the kernel asks again 5 s after the datagram, three times, and then drops it.
const DOUBT: Duration = Duration::from_secs(9);

/// The hardware address of the machine that has `address`; `None` when nobody answered.
pub async fn owner(address: Ipv4Addr) -> Option<String> {
    let known_before = look(address).await;
    // Port 9 throws away what it gets; most machines have none there, and that is fine: only the question on the wire matters.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.send_to(b"", (address, 9)).ok()?;
    if known_before.is_some() {
        tokio::time::sleep(DOUBT).await;
        return look(address).await;
    }
    let until = tokio::time::Instant::now() + PATIENCE;
    while tokio::time::Instant::now() < until {
        if let Some(mac) = look(address).await {
            return Some(mac);
        }
        tokio::time::sleep(LOOK).await;
    }
    None
}

async fn look(address: Ipv4Addr) -> Option<String> {
    let table = tokio::fs::read_to_string(TABLE).await.ok()?;
    answered(&table, address)
}

/// The hardware address of a complete entry.
fn answered(table: &str, address: Ipv4Addr) -> Option<String> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, flags, mac) = (fields.first()?, fields.get(2)?, fields.get(3)?);
        let complete = u32::from_str_radix(flags.trim_start_matches("0x"), 16).is_ok_and(|flags| flags & 2 != 0);
        (complete && ip.parse() == Ok(address) && *mac != "00:00:00:00:00:00").then(|| (*mac).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: &str = "IP address       HW type     Flags       HW address            Mask     Device
10.0.0.9         0x1         0x2         52:54:00:12:34:56     *        eth0
10.0.0.8         0x1         0x0         00:00:00:00:00:00     *        eth0
";

    #[test]
    fn only_an_owner_that_answered_counts() {
        assert_eq!(answered(SEEN, "10.0.0.9".parse().unwrap()).as_deref(), Some("52:54:00:12:34:56"));
        assert_eq!(answered(SEEN, "10.0.0.8".parse().unwrap()), None, "a question without an answer");
        assert_eq!(answered(SEEN, "10.0.0.7".parse().unwrap()), None);
        assert_eq!(answered("", "10.0.0.7".parse().unwrap()), None);
    }
}
