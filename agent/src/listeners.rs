//! Connections: accept with a bound, TLS where it is spoken, time out slow handshakes and heads, end politely.
//!
//! In: sockets and what answers requests. Out: served connections. Knows nothing of what is served.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    extract::{ConnectInfo, Request},
    response::Response,
};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, UnixListener},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use warden_access::http::{LocalAddress, OverTls};
use warden_gateway::Impatient;

use crate::{
    ending::{End, LAST_CALL, Newcomer},
    peers::Peers,
};

/// Connections at the same time on one listener; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 4096;
/// Of these, for one client network; further ones are closed at once.
const MAX_OF_ONE: usize = 1024;
/// A client that has not finished its request head by then is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(20);
/// A client that has not finished its TLS handshake by then is cut off.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts and serves until the end says so; returns once its connections ended or were cut. With `tls` every connection must first
/// finish a handshake. A client that reads nothing for `unread` is cut off.
pub async fn serve_tcp(listener: TcpListener, service: impl Answers, tls: Option<TlsAcceptor>, end: End, unread: Duration) {
    serve_shared(listener, service, tls, end, Peers::new(MAX_OF_ONE), unread).await;
}

async fn serve_shared(listener: TcpListener, service: impl Answers, tls: Option<TlsAcceptor>, mut end: End, peers: Peers, unread: Duration) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = TaskTracker::new();
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end.stopped() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(place) = peers.place(peer.ip()) else {
                    tracing::debug!(%peer, "a connection was closed: its network holds its share already");
                    continue;
                };
                let permit = (permit, place);
                let _ = stream.set_nodelay(true);
                let facts = Facts { peer: Some(peer), local: stream.local_addr().ok(), tls: tls.is_some() };
                let stream = Impatient::new(stream, unread);
                let service = With { service: service.clone(), facts };
                let (newcomer, mut end) = (end.newcomer(), end.clone());
                match tls.clone() {
                    None => drop(connections.spawn(serve_connection(stream, service, newcomer, permit, end, HEADER_TIMEOUT))),
                    Some(tls) => drop(connections.spawn(async move {
                        let shaken = tokio::select! {
                            shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => shaken,
                            () = end.cut() => return,
                        };
                        match shaken {
                            Ok(Ok(stream)) => serve_connection(stream, service, newcomer, permit, end, HEADER_TIMEOUT).await,
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
    connections.close();
    connections.wait().await;
}

/// The same over a Unix socket, for the local screen.
pub async fn serve_unix(listener: UnixListener, service: impl Answers, mut end: End) {
    let permits = Arc::new(Semaphore::new(16));
    let connections = TaskTracker::new();
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end.stopped() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let service = With { service: service.clone(), facts: Facts::default() };
                drop(connections.spawn(serve_connection(stream, service, end.newcomer(), permit, end.clone(), HEADER_TIMEOUT)));
            }
            Err(error) => {
                tracing::warn!(%error, "a local connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// What is known of a connection; told with each of its requests. A layer around the router would copy every route for every connection.
#[derive(Clone, Copy, Default)]
struct Facts {
    peer: Option<SocketAddr>,
    local: Option<SocketAddr>,
    tls: bool,
}

impl Facts {
    fn tell(self, request: &mut hyper::Request<Incoming>) {
        let about = request.extensions_mut();
        if let Some(peer) = self.peer {
            about.insert(ConnectInfo(peer));
        }
        if let Some(local) = self.local {
            about.insert(LocalAddress(local.ip()));
        }
        if self.tls {
            about.insert(OverTls);
        }
    }
}

/// What answers requests.
pub trait Answers: tower::Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + Sync + 'static {}

impl<A: tower::Service<Request, Response = Response, Error = Infallible, Future: Send> + Clone + Send + Sync + 'static> Answers for A {}

/// What a connection is served with.
struct With<A> {
    service: A,
    facts: Facts,
}

async fn serve_connection<S, A, P>(stream: S, with: With<A>, newcomer: Newcomer, permit: P, mut end: End, patience: Duration)
where
    P: Send + 'static,
    A: Answers,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let asked = Arc::new(AtomicBool::new(false));
    let (heard, newcomer) = (Arc::clone(&asked), Mutex::new(Some(newcomer)));
    let With { service, facts } = with;
    let served = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        facts.tell(&mut request);
        heard.store(true, Ordering::Relaxed);
        drop(newcomer.lock().unwrap_or_else(PoisonError::into_inner).take());
        service.clone().oneshot(request.map(axum::body::Body::new))
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(patience);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(256).keep_alive_interval(Some(Duration::from_secs(60)));
    let connection = builder.serve_connection(TokioIo::new(stream), served).into_owned();
    let (mut connection, mut ending, mut cut) = (std::pin::pin!(connection), false, end.clone());
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                break;
            }
            () = silence(&asked, patience) => {
                tracing::debug!("a connection without a request was closed");
                break;
            }
            () = last_word(&mut end, &asked), if !ending => {
                ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = cut.cut() => break,
        }
    }
    drop(permit);
}

/// Resolves when a connection is to end after what it is answering now: the agent ends, and the connection has asked at least once or
/// does not ask in time.
async fn last_word(end: &mut End, asked: &AtomicBool) {
    end.stopped().await;
    for _ in 0..50 {
        if asked.load(Ordering::Relaxed) {
            return;
        }
        tokio::time::sleep(LAST_CALL / 50).await;
    }
}

/// Resolves when a connection brought no request in time, and never when it did. hyper's own limit on heads begins only once it knows
/// the version of HTTP, so that a client without a word would hold its place for ever.
async fn silence(asked: &AtomicBool, patience: Duration) {
    tokio::time::sleep(patience).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::ending::{Ender, ending};

    const LIMIT: Duration = Duration::from_secs(10);

    /// One connection that is served, its other end, the end of all, and the permits it takes one of.
    fn served(router: Router, patience: Duration) -> (tokio::io::DuplexStream, Ender, Arc<Semaphore>) {
        let (client, server) = tokio::io::duplex(1024);
        let (ender, end) = ending();
        let permits = Arc::new(Semaphore::new(1));
        let permit = permits.clone().try_acquire_owned().unwrap();
        tokio::spawn(serve_connection(server, With { service: router, facts: Facts::default() }, end.newcomer(), permit, end, patience));
        (client, ender, permits)
    }

    #[tokio::test]
    async fn a_client_without_a_word_does_not_hold_its_place_for_ever() {
        for words in ["", "PRI"] {
            let (mut client, _ender, permits) = served(Router::new(), Duration::from_millis(100));
            client.write_all(words.as_bytes()).await.unwrap();
            let ended = tokio::time::timeout(LIMIT, client.read(&mut [0; 16])).await;
            assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{words:?}: {ended:?}");
            drop(tokio::time::timeout(LIMIT, permits.acquire()).await.unwrap().unwrap());
        }
    }

    #[tokio::test]
    async fn one_machine_that_takes_all_it_can_get_does_not_keep_others_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_ender, end) = ending();
        let said = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { format!("{} here", peer.ip()) };
        let router = Router::new().route("/", axum::routing::get(said));
        tokio::spawn(serve_shared(listener, router, None, end, Peers::counting_all(2), LIMIT));
        let from = |last: u8| async move {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, last], 0).into()).unwrap();
            socket.connect(address).await.unwrap()
        };
        let greedy = [from(9).await, from(9).await];
        let mut third = from(9).await;
        assert!(matches!(tokio::time::timeout(LIMIT, third.read(&mut [0; 16])).await, Ok(Ok(0) | Err(_))), "it is closed, not kept waiting");
        let ask = |mut stream: tokio::net::TcpStream| async move {
            let mut answer = String::new();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n").await.unwrap();
            tokio::time::timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
            answer
        };
        assert!(ask(from(8).await).await.ends_with("127.0.0.8 here"), "another machine is served");
        for stream in greedy {
            assert!(ask(stream).await.ends_with("here"), "and so is who came in time");
        }
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_loses_its_connection_and_its_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ender, end) = ending();
        let router = Router::new().route("/", axum::routing::get(|| async { vec![b'x'; 32 << 20] }));
        let serving = tokio::spawn(serve_tcp(listener, router, None, end, Duration::from_millis(200)));
        let mut client = tokio::net::TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: box\r\n\r\n").await.unwrap();
        client.readable().await.unwrap();
        ender.stop();
        // It ends only once its last connection did, which nobody cuts.
        tokio::time::timeout(LIMIT, serving).await.expect("the connection is given up").unwrap();
    }

    #[tokio::test]
    async fn who_came_just_before_the_end_is_still_answered_and_then_let_go() {
        let router = Router::new().route("/", axum::routing::get(|| async { "here" }));
        let (mut client, ender, _permits) = served(router, LIMIT);
        ender.stop();
        tokio::time::sleep(LAST_CALL / 10).await;
        client.write_all(b"GET / HTTP/1.1\r\nHost: box\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(LIMIT, client.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("here"), "{answer}");
    }

    #[tokio::test]
    async fn who_says_nothing_at_the_end_is_let_go_soon() {
        let (mut client, ender, _permits) = served(Router::new(), LIMIT);
        ender.stop();
        let ended = tokio::time::timeout(LIMIT / 2, client.read(&mut [0; 16])).await;
        assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    }
}
