//! Listening sockets and connections: bind or take over from systemd, accept with a bound, time out slow headers, end politely.
//!
//! In: sockets and a router. Out: served connections. Knows nothing of what is served.

use std::{
    convert::Infallible,
    net::SocketAddr,
    os::fd::FromRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::ConnectInfo};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::{Semaphore, watch},
};
use tower::ServiceExt;
use warden_access::http::LocalAddress;
use warden_domain::{Problem, ProblemKind};

use crate::config::Listen;

/// Connections at the same time on one listener; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 4096;
/// A client that has not finished its request head by then is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(20);

/// Opens the listening sockets.
///
/// # Errors
/// A port that is taken or forbidden, or no sockets from systemd, each as a sentence with the way out.
pub fn open(listen: &Listen) -> Result<Vec<TcpListener>, Problem> {
    match listen {
        Listen::Address(address) => {
            let socket = std::net::TcpListener::bind(address).map_err(|cause| bind_problem(*address, &cause))?;
            Ok(vec![into_tokio(socket)?])
        }
        Listen::Systemd => {
            let fds = sd_notify::listen_fds()
                .map_err(|cause| Problem::new(ProblemKind::SystemService, format!("systemd handed over no sockets: {cause}.")))?;
            let mut listeners = Vec::new();
            for fd in fds {
                listeners.push(into_tokio(take_fd(fd))?);
            }
            if listeners.is_empty() {
                return Err(Problem::new(
                    ProblemKind::SystemService,
                    "The configuration says listen = \"systemd\", but systemd handed over no socket.",
                )
                .hint("Start the agent through warden-agent.socket, or set listen to an ADDRESS:PORT."));
            }
            Ok(listeners)
        }
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

/// Accepts and serves until `stop` says so; returns once its connections ended or were cut `grace` after `cut` fired.
pub async fn serve_tcp(listener: TcpListener, router: Router, mut stop: watch::Receiver<bool>, cut: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let _ = stream.set_nodelay(true);
                let mut service = router.clone().layer(axum::Extension(ConnectInfo(peer)));
                if let Ok(local) = stream.local_addr() {
                    service = service.layer(axum::Extension(LocalAddress(local.ip())));
                }
                spawn_connection(stream, service, &graceful, permit, cut.clone(), HEADER_TIMEOUT);
            }
            Err(error) => {
                // Out of descriptors or a connection that is gone already: do not spin.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    finish(graceful, cut).await;
}

/// The same over a Unix socket, for the local screen.
pub async fn serve_unix(listener: UnixListener, router: Router, mut stop: watch::Receiver<bool>, cut: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(16));
    let graceful = GracefulShutdown::new();
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, _)) => spawn_connection(stream, router.clone(), &graceful, permit, cut.clone(), HEADER_TIMEOUT),
            Err(error) => {
                tracing::warn!(%error, "a local connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    finish(graceful, cut).await;
}

fn spawn_connection<S>(
    stream: S,
    router: Router,
    graceful: &GracefulShutdown,
    permit: tokio::sync::OwnedSemaphorePermit,
    mut cut: watch::Receiver<bool>,
    patience: Duration,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let asked = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&asked);
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        heard.store(true, Ordering::Relaxed);
        let router = router.clone();
        async move { Ok::<_, Infallible>(router.oneshot(request.map(axum::body::Body::new)).await.unwrap_or_else(|never| match never {})) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(patience);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(256).keep_alive_interval(Some(Duration::from_secs(60)));
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        tokio::select! {
            ended = connection => if let Err(error) = ended { tracing::debug!(%error, "a connection ended early") },
            () = silence(&asked, patience) => tracing::debug!("a connection without a request was closed"),
            _ = cut.wait_for(|cut| *cut) => {}
        }
        drop(permit);
    });
}

/// Resolves when a connection brought no request in time, and never when it did. hyper's own limit on heads begins only once it knows
/// the version of HTTP, so that a client without a word would hold its place for ever.
async fn silence(asked: &AtomicBool, patience: Duration) {
    tokio::time::sleep(patience).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

async fn finish(graceful: GracefulShutdown, mut cut: watch::Receiver<bool>) {
    tokio::select! {
        () = graceful.shutdown() => {}
        _ = cut.wait_for(|cut| *cut) => {}
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

    #[tokio::test]
    async fn a_client_without_a_word_does_not_hold_its_place_for_ever() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (patience, limit) = (Duration::from_millis(100), Duration::from_secs(10));
        for words in ["", "PRI"] {
            let (mut client, server) = tokio::io::duplex(1024);
            let (_cut, cut_seen) = watch::channel(false);
            let permits = Arc::new(Semaphore::new(1));
            let permit = permits.clone().acquire_owned().await.unwrap();
            spawn_connection(server, Router::new(), &GracefulShutdown::new(), permit, cut_seen, patience);
            client.write_all(words.as_bytes()).await.unwrap();
            let ended = tokio::time::timeout(limit, client.read(&mut [0; 16])).await;
            assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{words:?}: {ended:?}");
            drop(tokio::time::timeout(limit, permits.acquire()).await.unwrap().unwrap());
        }
    }
}
