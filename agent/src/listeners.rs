//! Connections: accept with a bound, TLS where it is spoken, time out slow handshakes and heads, end politely.
//!
//! In: sockets and a router. Out: served connections. Knows nothing of what is served.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Extension, Router, extract::ConnectInfo};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;
use warden_access::http::{LocalAddress, OverTls};

/// Connections at the same time on one listener; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 4096;
/// A client that has not finished its request head by then is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(20);
/// A client that has not finished its TLS handshake by then is cut off.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts and serves until `stop` says so; returns once its connections ended or `cut` fired. With `tls` every connection must first
/// finish a handshake.
pub async fn serve_tcp(listener: TcpListener, router: Router, tls: Option<TlsAcceptor>, mut stop: watch::Receiver<bool>, cut: watch::Receiver<bool>) {
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
                let mut service = router.clone().layer(Extension(ConnectInfo(peer)));
                if let Ok(local) = stream.local_addr() {
                    service = service.layer(Extension(LocalAddress(local.ip())));
                }
                let (watcher, mut cut) = (graceful.watcher(), cut.clone());
                match tls.clone() {
                    None => drop(tokio::spawn(serve_connection(stream, service, watcher, permit, cut, HEADER_TIMEOUT))),
                    Some(tls) => drop(tokio::spawn(async move {
                        let shaken = tokio::select! {
                            shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => shaken,
                            _ = cut.wait_for(|cut| *cut) => return,
                        };
                        match shaken {
                            Ok(Ok(stream)) => serve_connection(stream, service.layer(Extension(OverTls)), watcher, permit, cut, HEADER_TIMEOUT).await,
                            // Browsers that do not know the authority end here; it is no fault of ours and happens often.
                            Ok(Err(error)) => tracing::debug!(%error, %peer, "a TLS handshake failed"),
                            Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
                        }
                    })),
                }
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
            Ok((stream, _)) => {
                drop(tokio::spawn(serve_connection(stream, router.clone(), graceful.watcher(), permit, cut.clone(), HEADER_TIMEOUT)));
            }
            Err(error) => {
                tracing::warn!(%error, "a local connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    finish(graceful, cut).await;
}

async fn serve_connection<S>(
    stream: S,
    router: Router,
    watcher: Watcher,
    permit: OwnedSemaphorePermit,
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
    let connection = watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned());
    tokio::select! {
        ended = connection => if let Err(error) = ended { tracing::debug!(%error, "a connection ended early") },
        () = silence(&asked, patience) => tracing::debug!("a connection without a request was closed"),
        _ = cut.wait_for(|cut| *cut) => {}
    }
    drop(permit);
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
    async fn a_client_without_a_word_does_not_hold_its_place_for_ever() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (patience, limit) = (Duration::from_millis(100), Duration::from_secs(10));
        for words in ["", "PRI"] {
            let (mut client, server) = tokio::io::duplex(1024);
            let (_cut, cut_seen) = watch::channel(false);
            let permits = Arc::new(Semaphore::new(1));
            let permit = permits.clone().acquire_owned().await.unwrap();
            tokio::spawn(serve_connection(server, Router::new(), GracefulShutdown::new().watcher(), permit, cut_seen, patience));
            client.write_all(words.as_bytes()).await.unwrap();
            let ended = tokio::time::timeout(limit, client.read(&mut [0; 16])).await;
            assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{words:?}: {ended:?}");
            drop(tokio::time::timeout(limit, permits.acquire()).await.unwrap().unwrap());
        }
    }
}
