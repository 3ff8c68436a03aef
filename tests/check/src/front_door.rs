//! How a visitor comes to trust a box: the authority's certificate from the plain port, then only what that authority signed.
//!
//! In: the two addresses. Out: a console over TLS. A person compares fingerprints on the screen at this point; the cases that are about
//! that do it themselves.

use std::time::{Duration, Instant};

use crate::console::Console;
use crate::http::Http;
use crate::log::CaseLog;

/// The two addresses of a box.
#[derive(Clone, Debug)]
pub struct FrontDoor {
    /// `https://host:port` of port 443.
    pub encrypted: String,
    /// `http://host:port` of port 80.
    pub plain: String,
}

impl FrontDoor {
    /// The authority's certificate as PEM.
    ///
    /// # Errors
    /// A sentence when the plain port does not show one.
    pub fn authority(&self) -> Result<String, String> {
        let reply = Http::new(&self.plain, Duration::from_secs(5)).get("/ca.crt")?;
        if reply.status == 200 { Ok(reply.text()) } else { Err(format!("GET /ca.crt answered {}: {}", reply.status, reply.text())) }
    }

    /// Waits for the authority and returns a visitor who trusts it.
    ///
    /// # Errors
    /// A sentence with the last answer when the limit passes.
    pub fn wait_console(&self, limit: Duration, log: &CaseLog) -> Result<Console, String> {
        let started = Instant::now();
        loop {
            match self.authority() {
                Ok(authority) => {
                    log.line(format!("the authority of {}:\n{authority}", self.plain));
                    return Ok(Console::over(Http::trusting(&self.encrypted, &authority, Duration::from_secs(120))?, log));
                }
                Err(last) if started.elapsed() >= limit => {
                    return Err(format!("port 80 showed no authority within {} s; last: {last}", limit.as_secs()));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}
