//! Listening sockets: bound here (a development machine) or taken over from systemd, which holds them while the agent restarts.
//!
//! In: where to listen. Out: sockets, each with what is spoken on it. systemd tells by name: `https` and `redirect` come from the socket
//! units, `plain` is what this agent left in systemd's store before it was restarted.

use std::{net::SocketAddr, os::fd::FromRawFd};

use tokio::net::TcpListener;
use warden_domain::{Problem, ProblemKind};

use crate::config::Listen;

/// What is spoken on a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoken {
    /// Everything, unencrypted.
    Plain,
    /// Everything, over TLS.
    Tls,
    /// Unencrypted: the authority's certificate, its fingerprint, and the way to the encrypted port.
    Redirect,
}

/// A socket that listens.
#[derive(Debug)]
pub struct Socket {
    /// The socket.
    pub listener: TcpListener,
    /// What is spoken on it.
    pub spoken: Spoken,
}

/// Opens the listening sockets.
///
/// # Errors
/// A port that is taken or forbidden, or no sockets from systemd, each as a sentence with the way out.
pub fn open(listen: &Listen) -> Result<Vec<Socket>, Problem> {
    match listen {
        Listen::Address(address) => Ok(vec![Socket { listener: bind(*address)?, spoken: Spoken::Plain }]),
        Listen::Systemd => {
            let fds = sd_notify::listen_fds_with_names()
                .map_err(|cause| Problem::new(ProblemKind::SystemService, format!("systemd handed over no sockets: {cause}.")))?;
            let mut sockets = Vec::new();
            for (fd, name) in fds {
                let socket = take_fd(fd);
                match spoken(&name) {
                    Some(spoken) => sockets.push(Socket { listener: into_tokio(socket)?, spoken }),
                    None => tracing::warn!(name, "systemd handed over a socket of an unknown name; it is closed"),
                }
            }
            if !sockets.iter().any(|socket| socket.spoken == Spoken::Tls) {
                return Err(Problem::new(
                    ProblemKind::SystemService,
                    "The configuration says listen = \"systemd\", but systemd handed over no socket named https.",
                )
                .hint("Start the agent through warden-agent.socket, or set listen to an ADDRESS:PORT."));
            }
            Ok(sockets)
        }
    }
}

/// Binds an address.
///
/// # Errors
/// The port is taken or forbidden, with the way out.
pub fn bind(address: SocketAddr) -> Result<TcpListener, Problem> {
    into_tokio(std::net::TcpListener::bind(address).map_err(|cause| bind_problem(address, &cause))?)
}

fn spoken(name: &str) -> Option<Spoken> {
    match name {
        "https" => Some(Spoken::Tls),
        "redirect" => Some(Spoken::Redirect),
        crate::plain_door::STORED_AS => Some(Spoken::Plain),
        _ => None,
    }
}

#[allow(unsafe_code, reason = "taking over inherited descriptors has no safe form; see SAFETY")]
fn take_fd(fd: std::os::fd::RawFd) -> std::net::TcpListener {
    // SAFETY: systemd passes these descriptors to this process alone (LISTEN_PID was checked by sd_notify) and each is taken once, at
    // start, before anything else could own it.
    unsafe { std::net::TcpListener::from_raw_fd(fd) }
}

fn into_tokio(socket: std::net::TcpListener) -> Result<TcpListener, Problem> {
    socket
        .set_nonblocking(true)
        .and_then(|()| TcpListener::from_std(socket))
        .map_err(|cause| Problem::internal(format!("the listening socket cannot be used: {cause}.")))
}

fn bind_problem(address: SocketAddr, cause: &std::io::Error) -> Problem {
    match cause.kind() {
        std::io::ErrorKind::AddrInUse => {
            Problem::new(ProblemKind::Conflict, format!("Port {} on {} is taken by another program.", address.port(), address.ip()))
                .hint("Stop that program, or choose another port (WARDEN_PORT=8081 make run, or `listen` in the configuration).")
        }
        std::io::ErrorKind::PermissionDenied => Problem::new(ProblemKind::Forbidden, format!("Binding {address} is not allowed for this user."))
            .hint("Use a port above 1023, or let systemd hold the socket."),
        _ => Problem::new(ProblemKind::SystemService, format!("Cannot listen on {address}: {cause}.")).hint("Check the address in `listen`."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_taken_port_is_named_with_the_way_out() {
        let first = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = first.local_addr().unwrap();
        let problem = open(&Listen::Address(address)).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Conflict);
        assert!(problem.full_text().contains(&address.port().to_string()));
        assert!(problem.full_text().contains("WARDEN_PORT"));
    }

    #[test]
    fn a_socket_of_an_unknown_name_is_never_served() {
        assert_eq!(spoken("https"), Some(Spoken::Tls));
        assert_eq!(spoken("redirect"), Some(Spoken::Redirect));
        assert_eq!(spoken("http"), None);
        assert_eq!(spoken("unknown"), None);
    }
}
