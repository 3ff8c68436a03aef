//! Takes a request body in, bounded: per body, over all bodies, and in time.
//!
//! A body that is refused is refused while it arrives. What its client still sends is read and thrown away for a while: a connection that
//! is closed on unread bytes is reset, and many clients then never see why.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, header},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use warden_domain::{Problem, ProblemKind, units};

use crate::{GatewayLimits, spliced::Spliced};

/// The grain in which memory is counted.
const GRAIN: usize = 1024;
/// Most that is read of a body that was refused.
const THROWN_AWAY: usize = 64 << 20;
/// Longest time for that, and longest pause in it.
const THROWING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(5));
/// Most that is set aside for a body by its announced length alone. The turn of a coding agent fits in, so it is not moved while it
/// arrives; memory that nothing arrives in is never touched.
const AT_ONCE: usize = 256 * 1024;

/// Memory for bodies, shared by all requests.
pub(crate) struct BodyRoom(Arc<Semaphore>);

/// A body in memory; its room is free again when it is dropped.
pub(crate) struct HeldBody {
    /// The client's; empty once there is the engine's.
    pub bytes: Bytes,
    /// The engine's, once it is known what that is.
    pub for_engine: Option<Spliced>,
    _room: Vec<OwnedSemaphorePermit>,
}

impl HeldBody {
    /// From now on it is the engine's, so that nobody who waits holds two.
    pub(crate) fn readdress(&mut self, for_engine: Spliced) {
        (self.bytes, self.for_engine) = (Bytes::new(), Some(for_engine));
    }
}

impl BodyRoom {
    pub(crate) fn new(all_bodies: usize) -> Self {
        Self(Arc::new(Semaphore::new((all_bodies / GRAIN).min(Semaphore::MAX_PERMITS))))
    }

    /// Reads a body whole. Room is taken as bytes arrive, so a client cannot take room by announcing a length.
    pub(crate) async fn read(&self, headers: &HeaderMap, mut body: Body, limits: &GatewayLimits) -> Result<HeldBody, Problem> {
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
        let read = if announced.is_some_and(|n| n > limits.body as u64) { Err(too_large(limits)) } else { self.take(&mut body, limits).await };
        if read.as_ref().is_err_and(|problem| matches!(problem.kind, ProblemKind::TooLarge | ProblemKind::Overloaded)) {
            let_go(headers, body);
        }
        read
    }

    async fn take(&self, body: &mut Body, limits: &GatewayLimits) -> Result<HeldBody, Problem> {
        let hint = usize::try_from(body.size_hint().lower()).unwrap_or(0).min(limits.body).min(AT_ONCE);
        let (mut bytes, mut room, mut paid) = (BytesMut::with_capacity(hint), Vec::new(), 0);
        let end = tokio::time::Instant::now() + limits.body_whole;
        loop {
            let next = end.min(tokio::time::Instant::now() + limits.body_pause);
            let frame = match tokio::time::timeout_at(next, body.frame()).await {
                Err(_) if next == end => {
                    let within = limits.body_whole.as_secs();
                    return Err(Problem::new(ProblemKind::BadRequest, format!("The body of the request did not arrive within {within} s."))
                        .hint("Send less at once, or over a faster connection."));
                }
                Err(_) => {
                    return Err(Problem::new(ProblemKind::BadRequest, "The body of the request stopped arriving.")
                        .hint("Send the whole body without a pause."));
                }
                Ok(None) => break,
                Ok(Some(Err(_))) => return Err(broke_off()),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > limits.body {
                return Err(too_large(limits));
            }
            // Paid for before it is kept: together they never hold more than there is room for.
            let owed = (bytes.len() + data.len()).div_ceil(GRAIN) - paid;
            if owed > 0 {
                let more = u32::try_from(owed).ok().and_then(|n| Arc::clone(&self.0).try_acquire_many_owned(n).ok());
                room.push(more.ok_or_else(no_room)?);
                paid += owed;
                merge(&mut room);
            }
            bytes.extend_from_slice(&data);
        }
        Ok(HeldBody { bytes: bytes.freeze(), for_engine: None, _room: room })
    }
}

/// Reads on, in the background, what a client sends of a body that nobody wants, so that it finds its answer at the end. One who waits to
/// be told to send its body sends none.
pub(crate) fn let_go(headers: &HeaderMap, mut body: Body) {
    if body.is_end_stream() || headers.contains_key(header::EXPECT) {
        return;
    }
    tokio::spawn(tokio::time::timeout(THROWING.0, async move {
        let mut left = THROWN_AWAY;
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(THROWING.1, body.frame()).await {
            let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
            left = rest;
        }
    }));
}

/// One permit per body instead of one per piece.
fn merge(room: &mut Vec<OwnedSemaphorePermit>) {
    if room.len() == 2
        && let (Some(last), Some(first)) = (room.pop(), room.first_mut())
    {
        first.merge(last);
    }
}

fn broke_off() -> Problem {
    Problem::new(ProblemKind::BadRequest, "The body of the request broke off.")
        .hint("Send it again whole; Content-Length must be its length, and a chunked body ends with an empty chunk.")
}

fn too_large(limits: &GatewayLimits) -> Problem {
    Problem::new(ProblemKind::TooLarge, format!("The body of the request is larger than {}.", units::Bytes(limits.body as u64)))
        .hint("Send less at once; pictures are smaller as JPEG.")
}

fn no_room() -> Problem {
    Problem::new(ProblemKind::Overloaded, "Too many large requests are being read at this moment.")
        .hint("Try again in a few seconds.")
        .retry_after(Duration::from_secs(2))
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        task::{Context, Poll},
    };

    use http_body::Frame;

    use super::*;

    /// A body whose pieces come through a channel.
    struct Trickle(tokio::sync::mpsc::Receiver<Bytes>);

    impl HttpBody for Trickle {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            self.0.poll_recv(cx).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    #[tokio::test]
    async fn a_body_that_trickles_for_ever_is_given_up() {
        let ms = Duration::from_millis;
        let limits = GatewayLimits { body_whole: ms(200), body_pause: ms(10_000), ..GatewayLimits::default() };
        let room = BodyRoom::new(1024 * GRAIN);
        let (pipe, body) = tokio::sync::mpsc::channel::<Bytes>(1);
        let trickle = tokio::spawn(async move {
            while pipe.send(Bytes::from_static(b"x")).await.is_ok() {
                tokio::time::sleep(ms(20)).await;
            }
        });
        let problem = room.read(&HeaderMap::new(), Body::new(Trickle(body)), &limits).await.err().unwrap();
        assert_eq!(problem.kind, ProblemKind::BadRequest);
        assert!(problem.message.contains("did not arrive"), "{}", problem.message);
        trickle.await.unwrap();
    }

    #[tokio::test]
    async fn a_body_that_stops_arriving_is_given_up_and_its_room_is_free() {
        let limits = GatewayLimits { body_pause: Duration::from_millis(50), ..GatewayLimits::default() };
        let room = BodyRoom::new(4 * GRAIN);
        let (pipe, body) = tokio::sync::mpsc::channel::<Bytes>(1);
        pipe.send(Bytes::from(vec![b'x'; 3 * GRAIN])).await.unwrap();
        let problem = room.read(&HeaderMap::new(), Body::new(Trickle(body)), &limits).await.err().unwrap();
        assert!(problem.message.contains("stopped arriving"), "{}", problem.message);
        assert!(pipe.is_closed(), "nothing is read of it any more");
        assert_eq!(room.0.available_permits(), 4);
    }

    #[tokio::test]
    async fn a_chunked_body_is_refused_at_its_limit_and_what_comes_behind_it_is_thrown_away() {
        let limits = GatewayLimits { body: 8 * GRAIN, ..GatewayLimits::default() };
        let room = BodyRoom::new(64 * GRAIN);
        let (pipe, body) = tokio::sync::mpsc::channel::<Bytes>(16);
        for _ in 0..9 {
            pipe.send(Bytes::from(vec![b'x'; GRAIN])).await.unwrap();
        }
        // Its end has not come.
        assert_eq!(room.read(&HeaderMap::new(), Body::new(Trickle(body)), &limits).await.err().unwrap().kind, ProblemKind::TooLarge);
        assert_eq!(room.0.available_permits(), 64);
        for _ in 0..100 {
            pipe.send(Bytes::from(vec![b'x'; GRAIN])).await.unwrap();
        }
    }

    #[tokio::test]
    async fn large_bodies_of_many_clients_cannot_eat_the_memory_and_room_comes_back() {
        let limits = GatewayLimits { body: 8 * GRAIN, ..GatewayLimits::default() };
        let room = BodyRoom::new(10 * GRAIN);
        let headers = HeaderMap::new();
        let read = |n: usize| room.read(&headers, Body::from(vec![b'x'; n]), &limits);
        let first = read(8 * GRAIN).await.unwrap();
        assert_eq!(read(3 * GRAIN).await.err().unwrap().kind, ProblemKind::Overloaded);
        drop(first);
        assert_eq!(read(8 * GRAIN).await.unwrap().bytes.len(), 8 * GRAIN);
        assert_eq!(read(8 * GRAIN + 1).await.err().unwrap().kind, ProblemKind::TooLarge);
    }
}
