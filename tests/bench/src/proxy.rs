//! The bare proxy: what hyper costs when nothing is done with what goes through. The measure for what a gateway adds.
//!
//! It takes a request in whole, as every gateway that reads bodies must, sends it on over a pooled connection, and passes the answer's
//! pieces on as they come.

use std::{convert::Infallible, net::SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::{Request, Response, StatusCode, Uri, body::Incoming, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::net::TcpListener;

type Engine = Client<HttpConnector, Full<Bytes>>;
type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// Serves until it is ended from outside.
///
/// # Errors
/// A sentence when it cannot listen.
pub fn run(listen: SocketAddr, engine: SocketAddr) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| format!("no runtime: {e}"))?;
    runtime.block_on(serve(listen, engine))
}

async fn serve(listen: SocketAddr, engine: SocketAddr) -> Result<(), String> {
    let said = |e: std::io::Error| format!("the proxy cannot listen on {listen}: {e}");
    let listener = TcpListener::bind(listen).await.map_err(said)?;
    println!("listening {}", listener.local_addr().map_err(said)?);
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Engine = Client::builder(TokioExecutor::new()).build(connector);
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _a_little_slower = stream.set_nodelay(true);
        let client = client.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| pass(request, client.clone(), engine));
            let _client_went_away = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn pass(request: Request<Incoming>, client: Engine, engine: SocketAddr) -> Result<Answer, Infallible> {
    let broken = || {
        let mut response = Response::new(Either::Right(Full::new(Bytes::new())));
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        response
    };
    let (mut head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Ok(broken()) };
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let Ok(uri) = Uri::builder().scheme("http").authority(engine.to_string()).path_and_query(path).build() else { return Ok(broken()) };
    head.uri = uri;
    Ok(match client.request(Request::from_parts(head, Full::new(body.to_bytes()))).await {
        Ok(answer) => answer.map(Either::Left),
        Err(_) => broken(),
    })
}
