//! Takes a request body in, bounded: per body, over all bodies, and in time.

use std::sync::Arc;

use axum::{
    body::{Body, HttpBody},
    http::{HeaderMap, header},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use warden_domain::{Problem, ProblemKind, units};

use crate::GatewayLimits;

/// The grain in which memory is counted.
const GRAIN: usize = 1024;
/// Most that is set aside for a body by its announced length alone. The turn of a coding agent fits in, so it is not moved while it
/// arrives; memory that nothing arrives in is never touched.
const AT_ONCE: usize = 256 * 1024;

/// Memory for bodies, shared by all requests.
pub(crate) struct BodyRoom(Arc<Semaphore>);

/// A body in memory; its room is free again when it is dropped.
pub(crate) struct HeldBody {
    /// The bytes.
    pub bytes: Bytes,
    _room: Vec<OwnedSemaphorePermit>,
}

impl BodyRoom {
    pub(crate) fn new(all_bodies: usize) -> Self {
        Self(Arc::new(Semaphore::new((all_bodies / GRAIN).min(Semaphore::MAX_PERMITS))))
    }

    /// Reads a body whole. Room is taken as bytes arrive, so a client cannot take room by announcing a length.
    pub(crate) async fn read(&self, headers: &HeaderMap, mut body: Body, limits: &GatewayLimits) -> Result<HeldBody, Problem> {
        let announced = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
        if announced.is_some_and(|n| n > limits.body as u64) {
            return Err(too_large(limits));
        }
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
            bytes.extend_from_slice(&data);
            let owed = bytes.len().div_ceil(GRAIN) - paid;
            if owed > 0 {
                let more = u32::try_from(owed).ok().and_then(|n| Arc::clone(&self.0).try_acquire_many_owned(n).ok());
                room.push(more.ok_or_else(no_room)?);
                paid += owed;
                merge(&mut room);
            }
        }
        Ok(HeldBody { bytes: bytes.freeze(), _room: room })
    }
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
        .retry_after(std::time::Duration::from_secs(2))
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
        let ms = std::time::Duration::from_millis;
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
