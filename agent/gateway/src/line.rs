//! The line to one client: the head of its answer, the pieces of it, and the words that keep it alive while nothing else is to be said.
//!
//! A short channel between the work that makes the answer and the body that the server reads. An answer that ends badly never looks
//! complete: the body ends cleanly only after the work said so. An answer is committed with its head; until then any fault is a plain
//! status.
//!
//! The work is either part of the body, so that whoever reads the body does it and a piece on its way wakes nobody else, or a task of its
//! own. Part of the body it ends with it; the connection must then give up a client that stops reading, because nobody does the work
//! meanwhile. A task of its own is told that the client is gone, and gives it up itself.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc::{self, error::TrySendError};
use warden_domain::Problem;

use crate::{alarm::Alarm, tap::Tap};

/// Pieces that may wait for the client.
const AHEAD: usize = 8;
/// Time for the last event to leave before the connection is cut behind it.
const LAST_WORDS: Duration = Duration::from_millis(50);

/// What is sent along the line.
enum Piece {
    /// Boxed, so that a place in the channel is small.
    Head(Box<Head>),
    Data(Bytes),
    End,
    /// Instead of everything: there is no answer.
    Refused(Box<Problem>),
}

/// The head of an answer.
pub(crate) struct Head {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Exact length of the body, if it is known.
    pub length: Option<u64>,
}

impl Head {
    /// The head of a stream that is made here.
    pub(crate) fn stream() -> Self {
        let mut head = Self { status: StatusCode::OK, headers: HeaderMap::new(), length: None };
        head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        head.never_stored()
    }

    /// The head of a document that is made here.
    pub(crate) fn document(length: u64) -> Self {
        let mut head = Self { status: StatusCode::OK, headers: HeaderMap::new(), length: Some(length) };
        head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        head
    }

    /// Tells those in between to hold nothing back.
    pub(crate) fn never_stored(mut self) -> Self {
        self.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        self.headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        self
    }
}

/// The client is gone, or was given up because it does not read.
#[derive(Debug)]
pub(crate) struct Gone;

/// Our end of the line.
pub(crate) struct Line {
    pieces: mpsc::Sender<Piece>,
    client_pause: Duration,
    committed: bool,
    /// Rings when a stream was silent for too long.
    alive: Option<Alarm>,
}

/// The other end, until it is the body of an answer.
pub(crate) struct Receiver {
    pieces: mpsc::Receiver<Piece>,
    work: Option<Work>,
}

/// What makes the answer, where no task of its own does.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A line. `keep_alive`: how long a stream may be silent; `None`: it may for ever.
pub(crate) fn open(client_pause: Duration, keep_alive: Option<Duration>) -> (Line, Receiver) {
    let (pieces, receiver) = mpsc::channel(AHEAD);
    let alive = keep_alive.map(Alarm::new);
    (Line { pieces, client_pause, committed: false, alive }, Receiver { pieces: receiver, work: None })
}

impl Line {
    /// Done when the client is gone.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + use<> {
        let pieces = self.pieces.clone();
        async move { pieces.closed().await }
    }

    /// Whether the head was sent.
    pub(crate) const fn is_committed(&self) -> bool {
        self.committed
    }

    /// Sends the head.
    pub(crate) async fn commit(&mut self, head: Head) -> Result<(), Gone> {
        self.committed = true;
        self.send(Piece::Head(Box::new(head))).await
    }

    /// Sends pieces.
    pub(crate) async fn give(&mut self, out: &mut VecDeque<Bytes>) -> Result<(), Gone> {
        for bytes in out.drain(..) {
            self.send(Piece::Data(bytes)).await?;
        }
        if let Some(alive) = &mut self.alive {
            alive.touch();
        }
        Ok(())
    }

    /// The answer is complete.
    pub(crate) async fn end(&mut self) {
        let _gone = self.send(Piece::End).await;
    }

    /// There is no answer. Only before the head.
    pub(crate) async fn refuse(&mut self, problem: Problem) {
        let _gone = self.send(Piece::Refused(Box::new(problem))).await;
    }

    /// Says the last words, behind which the line is to be dropped: that cuts it.
    pub(crate) async fn cut(&mut self, mut last: VecDeque<Bytes>) {
        if self.give(&mut last).await.is_ok() && !self.pieces.is_closed() {
            tokio::time::sleep(LAST_WORDS).await;
        }
    }

    /// Waits for something, and keeps the client's connection alive meanwhile.
    pub(crate) async fn while_waiting<T>(&mut self, tap: &mut Tap, head: impl Fn() -> Head, work: impl Future<Output = T>) -> Result<T, Gone> {
        let mut work = pin!(work);
        loop {
            let Some(alive) = &mut self.alive else { return Ok(work.await) };
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = alive.rings() => {
                    let mut out = VecDeque::new();
                    tap.keep_alive(&mut out);
                    if !out.is_empty() && !self.committed {
                        self.commit(head()).await?;
                    }
                    self.give(&mut out).await?;
                }
            }
        }
    }

    async fn send(&mut self, piece: Piece) -> Result<(), Gone> {
        let piece = match self.pieces.try_send(piece) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(Gone),
            Err(TrySendError::Full(piece)) => piece,
        };
        match tokio::time::timeout(self.client_pause, self.pieces.send(piece)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Gone),
            Err(_) => {
                tracing::info!("a client stopped reading its answer and was given up");
                Err(Gone)
            }
        }
    }
}

impl Receiver {
    /// Whoever reads does this work, until it ends or nobody reads any more.
    pub(crate) fn doing(self, work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), ..self }
    }

    /// Waits for the head, and makes the answer of it.
    pub(crate) async fn answer(mut self) -> Result<Response, Problem> {
        match poll_fn(|cx| self.poll_piece(cx)).await {
            Some(Piece::Head(head)) => {
                let mut response = Response::new(Body::new(LineBody { line: self, length: head.length, ended: false }));
                *response.status_mut() = head.status;
                *response.headers_mut() = head.headers;
                Ok(response)
            }
            Some(Piece::Refused(problem)) => Err(*problem),
            Some(Piece::Data(_) | Piece::End) | None => Err(Problem::internal("The request was lost on its way.").hint("Try again.")),
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let piece = self.pieces.poll_recv(cx);
        let Some(work) = self.work.as_mut().filter(|_| piece.is_pending()) else { return piece };
        if work.as_mut().poll(cx).is_ready() {
            self.work = None;
        }
        self.pieces.poll_recv(cx)
    }
}

/// The body of an answer.
struct LineBody {
    line: Receiver,
    length: Option<u64>,
    ended: bool,
}

impl http_body::Body for LineBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match ready!(self.line.poll_piece(cx)) {
            Some(Piece::Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Piece::End) => {
                self.ended = true;
                Poll::Ready(None)
            }
            Some(Piece::Head(_) | Piece::Refused(_)) | None => {
                self.ended = true;
                Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the answer broke off"))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.length.map_or_else(http_body::SizeHint::default, http_body::SizeHint::with_exact)
    }
}
