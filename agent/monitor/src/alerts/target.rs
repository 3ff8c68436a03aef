//! The receiver's address: what is accepted, and why the rest is refused. Pure.

use http::Uri;
use warden_domain::{Problem, ProblemKind};

const LONGEST: usize = 2000;

/// A checked address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Host name or address, without brackets.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
    /// `Host` header.
    pub(crate) authority: String,
    /// Path and query.
    pub(crate) path: String,
}

/// Checks an address.
pub(crate) fn parse(url: &str) -> Result<Target, Problem> {
    let refused = |why: &str, hint: &str| Problem::new(ProblemKind::Invalid, format!("Alerts cannot be sent there: {why}.")).hint(hint).param("url");
    let form = "Give an address such as http://ops.example:9000/warden.";
    if url.is_empty() {
        return Err(refused("no address was given", form));
    }
    if url.len() > LONGEST {
        return Err(refused("the address is longer than 2000 characters", form));
    }
    let uri: Uri = url.parse().map_err(|_| refused("it is no address", form))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(refused("https is not offered yet", "Use http inside your own network; each message is signed, but not encrypted."));
        }
        Some(_) => return Err(refused("it is neither http nor https", form)),
        None => return Err(refused("it does not begin with http://", form)),
    }
    let authority = uri.authority().ok_or_else(|| refused("it names no host", form))?;
    if authority.as_str().contains('@') {
        return Err(refused("it holds a user name", "Leave the name and password out; the receiver checks the signature instead."));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    if host.is_empty() {
        return Err(refused("it names no host", form));
    }
    let port = match authority.as_str().get(authority.host().len()..) {
        None | Some("") => 80,
        Some(rest) => rest
            .trim_start_matches(':')
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| refused("its port is no number from 1 to 65535", form))?,
    };
    if url.contains('#') {
        return Err(refused("it holds a fragment", form));
    }
    let path = uri.path_and_query().map_or_else(|| "/".to_owned(), |path| path.as_str().to_owned());
    Ok(Target { host, port, authority: authority.as_str().to_owned(), path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart() {
        let target = parse("http://ops.example:9000/warden?box=1").unwrap();
        assert_eq!((target.host.as_str(), target.port, target.path.as_str()), ("ops.example", 9000, "/warden?box=1"));
        let v6 = parse("http://[fd00::1]/").unwrap();
        assert_eq!((v6.host.as_str(), v6.port, v6.authority.as_str()), ("fd00::1", 80, "[fd00::1]"));
    }

    #[test]
    fn what_is_no_web_address_of_a_receiver_is_refused_with_a_reason() {
        for bad in [
            "",
            "ops.example/x",
            "/etc/passwd",
            "file:///etc/passwd",
            "gopher://x/",
            "ftp://x/",
            "https://ops.example/",
            "http://",
            "http:///x",
            "http://user:pw@ops.example/",
            "http://ops.example/a b",
            "http://ops.example:99999/",
            "http://ops.example/\r\nX: y",
        ] {
            let problem = parse(bad).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::Invalid, "{bad}");
            assert!(problem.hint.is_some(), "{bad}");
        }
        assert!(parse(&format!("http://x/{}", "a".repeat(3000))).is_err());
    }
}
