//! Which texts can be time servers, and which moments the clock may be set to. Pure.

use std::net::IpAddr;

use jiff::Timestamp;
use warden_domain::{Problem, ProblemKind};

const MOST: usize = 8;
/// Moments outside these are typing mistakes: the first lies before any release, the second beyond what the clock chip counts.
const FIRST: &str = "2025-01-01T00:00:00Z";
const LAST: &str = "2099-12-31T23:59:59Z";

/// Checks a list of time servers.
///
/// # Errors
/// `Invalid`, naming the one that is none.
pub fn check(servers: &[String]) -> Result<(), Problem> {
    let refused = |message: String| {
        Err(Problem::new(ProblemKind::Invalid, message).hint("Give names or addresses such as time.example.com or 192.168.1.1.").param("servers"))
    };
    if servers.len() > MOST {
        return refused(format!("{} time servers are given; at most {MOST} are kept.", servers.len()));
    }
    for server in servers {
        if !is_server(server) {
            return refused(format!("{server:?} is neither a host name nor an address."));
        }
    }
    Ok(())
}

fn is_server(text: &str) -> bool {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return !ip.is_unspecified() && !ip.is_multicast();
    }
    let label = |l: &str| {
        (1..=63).contains(&l.len()) && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') && !l.starts_with('-') && !l.ends_with('-')
    };
    // A last part of digits only is a mistyped address.
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= 253 && text.split('.').all(label) && !last.bytes().all(|b| b.is_ascii_digit())
}

/// Checks a moment to set the clock to.
///
/// # Errors
/// `Invalid`, naming the moments between which it must lie.
pub fn check_moment(to: Timestamp) -> Result<(), Problem> {
    let within = |bound: &str, fine: fn(Timestamp, Timestamp) -> bool| bound.parse::<Timestamp>().is_ok_and(|bound| fine(to, bound));
    if within(FIRST, |to, bound| to >= bound) && within(LAST, |to, bound| to <= bound) {
        return Ok(());
    }
    Err(Problem::new(ProblemKind::Invalid, format!("The clock cannot be set to {to}: only moments from {FIRST} to {LAST} make sense."))
        .hint("Give the present time in UTC.")
        .param("now"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_server_is_named() {
        check(&["time.example.com".into(), "192.168.1.1".into(), "fd00::1".into(), "ntp".into()]).unwrap();
        for bad in ["", "192.168.1.300", "a b", "-x.example", "http://x", "0.0.0.0", "224.0.0.1"] {
            let problem = check(&[bad.to_owned()]).unwrap_err();
            assert!(problem.message.contains(&format!("{bad:?}")), "{problem:?}");
        }
        assert!(check(&vec!["a.example".to_owned(); 9]).is_err());
    }

    #[test]
    fn a_clock_is_not_set_before_the_first_release() {
        check_moment("2026-11-30T12:00:00Z".parse().unwrap()).unwrap();
        assert!(check_moment("1970-01-01T00:00:00Z".parse().unwrap()).is_err());
        assert!(check_moment("2300-01-01T00:00:00Z".parse().unwrap()).is_err());
    }
}
