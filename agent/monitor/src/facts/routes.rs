//! Whether the kernel has a way out of the local network. The tables of the kernel in, yes or no out.

use std::io;

const UP: u32 = 0x0001;
const REJECT: u32 = 0x0200;

/// Whether there is a default route, for IPv4 or IPv6.
pub(crate) fn has_default_route() -> Result<bool, io::Error> {
    let v4 = std::fs::read_to_string("/proc/net/route")?;
    // A kernel without IPv6 has no such file, which is no fault.
    let v6 = std::fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    Ok(default_v4(&v4) || default_v6(&v6))
}

fn default_v4(table: &str) -> bool {
    table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let flags = fields.get(3).and_then(|text| u32::from_str_radix(text, 16).ok()).unwrap_or(0);
        fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000") && flags & UP != 0 && flags & REJECT == 0
    })
}

fn default_v6(table: &str) -> bool {
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let flags = fields.get(8).and_then(|text| u32::from_str_radix(text, 16).ok()).unwrap_or(0);
        let all = fields.first().is_some_and(|to| to.bytes().all(|b| b == b'0'));
        all && fields.get(1) == Some(&"00") && fields.get(9) != Some(&"lo") && flags & UP != 0 && flags & REJECT == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";

    #[test]
    fn a_way_out_is_told_from_a_way_within_the_local_network() {
        let local = format!("{HEAD}eth0\t0002000A\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n");
        assert!(!default_v4(HEAD) && !default_v4(&local));
        assert!(default_v4(&format!("{local}eth0\t00000000\t0202000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n")));
    }

    #[test]
    fn the_route_that_refuses_everything_is_no_way_out() {
        let zero = "00000000000000000000000000000000";
        assert!(!default_v6(&format!("{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n")));
        assert!(default_v6(&format!("{zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n")));
    }
}
