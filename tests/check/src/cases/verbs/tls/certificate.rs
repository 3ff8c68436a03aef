//! The box's own certificate: whom it is signed by, for what it is made, and that it follows names and addresses.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use serde_json::json;
use warden_vm::{INTERFACE, Lan};

use super::bench::{Bench, door};
use super::shake::{self, Shaken, shake};
use crate::http::Http;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// An authority of nobody here; its key was thrown away.
const SOMEBODY_ELSE: &str = "-----BEGIN CERTIFICATE-----\n\
    MIIBhzCCAS2gAwIBAgIUDfoGFvG7uj1Z7VoHW4/ec9G5NVgwCgYIKoZIzj0EAwIw\n\
    GDEWMBQGA1UEAwwNc29tZWJvZHkgZWxzZTAgFw0yNjExMzAwMjA4MjZaGA8yMTI2\n\
    MTEwNjAyMDgyNlowGDEWMBQGA1UEAwwNc29tZWJvZHkgZWxzZTBZMBMGByqGSM49\n\
    AgEGCCqGSM49AwEHA0IABEtM2Nfa8rIqi+htguWTT/rIcWZlO1Anv9/U2/K/uYN5\n\
    tjgdCIRBfmMg5Q1pct6LNtj9YBiJtUdpDEfQC3Ms9FajUzBRMB0GA1UdDgQWBBS4\n\
    vBjDP2fE64Zv22qG2UXSC+SqxDAfBgNVHSMEGDAWgBS4vBjDP2fE64Zv22qG2UXS\n\
    C+SqxDAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIQDInjXPPf+J\n\
    Xhx9MrRCamWpCA9Bzh3Mk9l0lVUa42cImAIgNx7KbucDVaBc/txbvo9xTZU9Ejt6\n\
    +2Xu2RgcJJQkHd0=\n\
    -----END CERTIFICATE-----\n";

fn port(address: impl Into<IpAddr>) -> SocketAddr {
    SocketAddr::new(address.into(), 443)
}

/// SHA-256 as the box writes it.
fn fingerprint(der: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(der).iter().map(|b| format!("{b:02X}")).collect::<Vec<_>>().join(":")
}

/// `tls-ca`: 443 shows a certificate of the own authority; 80 shows that authority, its fingerprint, and the way to 443.
pub fn authority(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::boot(stage, task, |_| Ok(()))?;
    let plain = Http::new(&door().plain, Duration::from_secs(5));
    let pem = bench.ask(&plain, "GET", "/ca.crt", &[])?;
    result.expect(
        pem.status == 200 && pem.header("content-type") == Some("application/x-x509-ca-cert"),
        format!("port 80 hands out the authority (status {})", pem.status),
    );
    let der = bench.ask(&plain, "GET", "/ca.der", &[])?;
    let authority = pem.text();
    let told = bench.local_status()?;
    let shown = told["fingerprint"].as_str().unwrap_or_default().to_owned();
    result.expect(fingerprint(&der.body) == shown, format!("the local screen's fingerprint is that of the authority ({shown})"));
    let urls = told["console_urls"].to_string();
    result.expect(urls.contains("https://10.77.0.2/ui/"), format!("the local screen shows the encrypted address ({urls})"));
    let page = bench.ask(&plain, "GET", "/fingerprint", &[])?;
    result.expect(page.status == 200 && page.text().contains(&shown), "port 80 shows the fingerprint on a page");
    result.expect(!page.text().contains("<script") && !page.text().contains("style="), "the page brings no script and no style");

    for (path, to) in [("/", "https://10.77.0.2/"), ("/ui/models?x=1", "https://10.77.0.2/ui/models?x=1"), ("/healthz", "https://10.77.0.2/healthz")]
    {
        let reply = bench.ask(&plain, "GET", path, &[])?;
        result.expect(
            reply.status == 307 && reply.header("location") == Some(to),
            format!("port 80 leads {path} to {to} (status {}, {:?})", reply.status, reply.header("location")),
        );
    }
    for path in ["/api/auth/login", "/v1/chat/completions"] {
        let reply = bench.ask(&plain, "POST", path, &[])?;
        result.expect(
            reply.status == 403 && reply.text().contains("https"),
            format!("port 80 takes no {path} and says why (status {}: {})", reply.status, reply.text().trim()),
        );
    }

    let names = ["10.77.0.2", "warden", "warden.local", "localhost", "127.0.0.1"];
    for name in names {
        let seen = bench.within(|| shake(port(Lan::BOX_V4), name, &authority, &["h2", "http/1.1"]));
        result.expect(
            seen.as_ref().is_ok_and(|(seen, _)| seen.protocol == "h2" && seen.version == "TLSv1_3"),
            format!("443 is believed as {name}, speaks TLS 1.3 and HTTP/2 ({})", told_of(&seen)),
        );
    }
    let over_v6 = bench.within(|| shake(port(Lan::BOX_V6), "fd77::2", &authority, &["http/1.1"]));
    result.expect(over_v6.as_ref().is_ok_and(|(seen, _)| seen.protocol == "http/1.1"), format!("and over IPv6 ({})", told_of(&over_v6)));
    for name in ["evil.example", "10.77.0.3", "warden.local.evil.example"] {
        let seen = bench.within(|| shake(port(Lan::BOX_V4), name, &authority, &[]));
        result.expect(seen.is_err(), format!("443 is not believed as {name} ({})", told_of(&seen)));
    }
    let seen = bench.within(|| shake(port(Lan::BOX_V4), "10.77.0.2", SOMEBODY_ELSE, &[]));
    result.expect(seen.is_err(), format!("who trusts somebody else's authority does not believe it ({})", told_of(&seen)));
    let clear = Http::new("http://10.77.0.2:443", Duration::from_secs(5));
    let spoken = bench.within(|| Ok(clear.get("/healthz"))).unwrap_or_else(Err);
    result.expect(spoken.as_ref().map_or(true, |r| r.status != 200), "443 answers nothing in the clear");

    let health = bench.ask(&bench.trusting(Duration::from_secs(10))?, "GET", "/healthz", &[])?;
    result.expect(health.status == 200, format!("over TLS the agent answers (status {})", health.status));
    let console = bench.claimed()?;
    let login = bench.within(|| {
        let body = json!({"username": crate::console::ADMIN, "password": crate::console::PASSWORD}).to_string();
        console.stranger(bench.log()).http.send("POST", "/api/auth/login", &[("content-type", "application/json")], Some(body.as_bytes()))
    })?;
    let cookie = login.header("set-cookie").unwrap_or_default();
    let whole = ["Secure", "HttpOnly", "SameSite=Strict"].iter().all(|word| cookie.contains(word));
    result.expect(whole, format!("the session's cookie is Secure ({})", cookie.split_once(';').map(|c| c.1).unwrap_or_default()));
    let document = bench.within(|| console.expect("GET", "/api/tls", None, &[200]))?.json();
    result.expect(
        document["state"]["authority_fingerprint"] == shown && document["state"]["plain"]["state"] == "closed",
        "GET /api/tls shows the same fingerprint, and the plain port is shut",
    );
    let page = bench.within(|| console.page("/ui/tls"))?;
    result.expect(page.contains(&shown) && page.contains("warden.local"), "so does the page /ui/tls");

    let folder = bench.state().join("warden/tls");
    for entry in std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?.flatten() {
        let meta = entry.metadata().map_err(|e| e.to_string())?;
        result.expect(
            meta.mode() & 0o777 == 0o600 && meta.uid() == 700,
            format!("{} belongs to the agent alone (mode {:o}, owner {})", entry.file_name().to_string_lossy(), meta.mode() & 0o777, meta.uid()),
        );
    }
    let before = leaf(&bench, &authority)?;
    bench.root_ok(&["/usr/bin/systemctl", "restart", "warden-agent.service"])?;
    let after = leaf(&bench, &authority)?;
    result.expect(before == after && bench.authority()? == authority, "a restart shows the same certificate and authority");
    Ok(())
}

/// The certificate shown now.
fn leaf(bench: &Bench, authority: &str) -> Result<Vec<u8>, String> {
    bench.within(|| shake(port(Lan::BOX_V4), "10.77.0.2", authority, &["http/1.1"])).map(|(seen, _)| seen.leaf)
}

/// `tls-rename`: names and addresses change, the certificate follows, open connections go on.
pub fn rename(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let bench = Bench::boot(stage, task, |_| Ok(()))?;
    let authority = bench.authority()?;
    let console = bench.claimed()?;
    let (first, mut open) = bench.within(|| shake(port(Lan::BOX_V4), "warden.local", &authority, &["http/1.1"]))?;
    let refused = bench.within(|| shake(port(Lan::BOX_V4), "attic.local", &authority, &[]));
    result.expect(refused.is_err(), format!("the new name is not believed before ({})", told_of(&refused)));

    bench.rename("attic")?;
    let seconds = believed(&bench, &authority, Lan::BOX_V4.into(), "attic.local")?;
    result.figure("rename_s", seconds);
    result.expect(seconds <= 10.0, format!("{seconds:.1} s after the host name changed, the certificate is for the new one"));
    let old = bench.within(|| shake(port(Lan::BOX_V4), "warden.local", &authority, &[]));
    result.expect(old.is_err(), "the old name is no longer believed");
    let second = leaf(&bench, &authority)?;
    result.expect(second != first.leaf && bench.authority()? == authority, "it is another certificate of the same authority");
    let goes_on = bench.within(|| shake::ask(&mut open, "10.77.0.2"))?;
    result.expect(goes_on.starts_with("HTTP/1.1 200"), "a connection that was open before goes on");

    let added = Instant::now();
    bench.container.add_address(INTERFACE, "10.77.0.9/24").map_err(|e| e.to_string())?;
    let address: IpAddr = [10, 77, 0, 9].into();
    believed(&bench, &authority, address, "10.77.0.9")?;
    let seconds = added.elapsed().as_secs_f64();
    result.figure("new_address_s", seconds);
    result.expect(seconds <= 10.0, format!("{seconds:.1} s after an address came, the certificate is for it too"));

    let names = json!({"names": ["LLM.Example.org"]});
    let answer = bench.within(|| console.expect("PUT", "/api/tls", Some(&names), &[200]))?.json();
    result.expect(answer["config"]["names"] == json!(["llm.example.org"]), format!("a name is taken in its plain form ({})", answer["config"]));
    let named = bench.within(|| shake(port(Lan::BOX_V4), "llm.example.org", &authority, &[]));
    result.expect(named.is_ok(), format!("the certificate is for the admin's name when the call answers ({})", told_of(&named)));
    let refusal = bench.within(|| console.call("PUT", "/api/tls", Some(&json!({"names": ["https://llm.example.org/"]}))))?;
    result.expect(
        refusal.status == 422 && refusal.text().contains("without scheme"),
        format!("what is no name is refused with a way out (status {})", refusal.status),
    );
    bench.root_ok(&["/usr/bin/systemctl", "restart", "warden-agent.service"])?;
    let kept = bench.within(|| shake(port(Lan::BOX_V4), "llm.example.org", &authority, &[]));
    result.expect(kept.is_ok(), "the admin's name is kept over a restart");
    Ok(())
}

/// Waits until the box is believed under a name; returns how long that took, in seconds.
fn believed(bench: &Bench, authority: &str, address: IpAddr, name: &str) -> Result<f64, String> {
    let started = Instant::now();
    loop {
        match bench.within(|| shake(port(address), name, authority, &["http/1.1"])) {
            Ok(_) => return Ok(started.elapsed().as_secs_f64()),
            Err(last) if started.elapsed() > Duration::from_secs(30) => return Err(format!("{name} is not believed after 30 s: {last}")),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn told_of<T>(seen: &Result<(Shaken, T), String>) -> String {
    match seen {
        Ok((seen, _)) => format!("{} {}", seen.version, seen.protocol),
        Err(cause) => cause.clone(),
    }
}

/// Whether somebody answers a connection within a moment.
pub fn connects(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_secs(2)).is_ok()
}
