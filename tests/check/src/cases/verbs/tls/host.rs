//! `host-header`: which names the box answers to, over TLS and on port 80. A page of another site whose DNS name was turned to point at
//! the box carries that name; it must get nothing.

use std::time::Duration;

use serde_json::json;

use super::bench::{Bench, door};
use crate::http::Http;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

const OWN: [&str; 12] = [
    "10.77.0.2",
    "10.77.0.2:8443",
    "[fd77::2]",
    "warden",
    "WARDEN",
    "warden.local",
    "Warden.LOCAL:443",
    "warden.local.",
    "localhost",
    "localhost:18443",
    "127.0.0.1:9",
    "[::1]:18443",
];
const FOREIGN: [&str; 9] = [
    "evil.example",
    "warden.local.evil.example",
    "localhost.evil.example",
    "warden.evil",
    "10.77.0.3",
    "[fd77::3]",
    "10.77.0.2@evil.example",
    "10.77.0.2.evil.example",
    "127.0.0.1.nip.example",
];

/// Runs the case.
pub fn run(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::boot(stage, task, |_| Ok(()))?;
    let tls = bench.trusting(Duration::from_secs(10))?;
    let plain = Http::new(&door().plain, Duration::from_secs(10));
    for host in OWN {
        for path in ["/ui/login", "/api/setup/state"] {
            let reply = bench.ask(&tls, "GET", path, &[("host", host)])?;
            result.expect(reply.status < 400, format!("{path} answers to {host} (status {})", reply.status));
        }
        let reply = bench.ask(&plain, "GET", "/ui/", &[("host", host)])?;
        let to = reply.header("location").unwrap_or_default();
        result.expect(reply.status == 307 && to.starts_with("https://"), format!("port 80 answers to {host} and leads to {to}"));
    }
    for host in FOREIGN {
        for path in ["/ui/login", "/ui/", "/api/setup/state", "/healthz"] {
            let reply = bench.ask(&tls, "GET", path, &[("host", host)])?;
            let quiet = !reply.text().contains("csrf") && reply.header("location").is_none() && reply.header("set-cookie").is_none();
            result.expect(reply.status == 421 && quiet, format!("{path} does not answer to {host} (status {})", reply.status));
        }
        let claim = bench.ask(&tls, "POST", "/api/setup/claim", &[("host", host), ("content-type", "application/json")])?;
        result.expect(claim.status == 421, format!("nobody claims the box as {host} (status {})", claim.status));
        for path in ["/", "/ca.crt", "/fingerprint"] {
            let reply = bench.ask(&plain, "GET", path, &[("host", host)])?;
            result.expect(
                reply.status == 421 && reply.header("location").is_none(),
                format!("port 80 leads nobody away: {path} for {host} (status {})", reply.status),
            );
        }
    }
    let console = bench.claimed()?;
    let before = bench.ask(&tls, "GET", "/ui/login", &[("host", "llm.example.org")])?;
    let names = json!({"names": ["llm.example.org"]});
    bench.within(|| console.expect("PUT", "/api/tls", Some(&names), &[200]))?;
    let after = bench.ask(&tls, "GET", "/ui/login", &[("host", "LLM.example.org")])?;
    result.expect(
        before.status == 421 && after.status < 400,
        format!("a name answers once an admin allowed it ({} before, {} after)", before.status, after.status),
    );
    let below = bench.ask(&tls, "GET", "/ui/login", &[("host", "x.llm.example.org")])?;
    result.expect(below.status == 421, format!("and nothing below it does (status {})", below.status));
    let origin = [("origin", "https://10.77.0.2"), ("content-type", "application/json")];
    let ours = bench.ask(&tls, "POST", "/api/auth/login", &origin)?;
    result.expect(ours.status != 403, format!("a page of the box over TLS may call it (status {})", ours.status));
    for stranger in ["https://evil.example", "http://10.77.0.2", "null"] {
        let reply = bench.ask(&tls, "POST", "/api/auth/login", &[("origin", stranger), ("content-type", "application/json")])?;
        result.expect(reply.status == 403, format!("a page from {stranger} may not (status {})", reply.status));
    }
    Ok(())
}
