//! The body of an engine's answer, and with it the connection it comes over.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{pool::Shelf, wire::Wire};

/// See the module. Dropped before its end, it closes the connection; at its end the connection is kept for the next request.
pub(crate) struct AnswerBody {
    body: Incoming,
    /// Until the end.
    wire: Option<Wire>,
    shelf: Arc<Shelf>,
}

impl AnswerBody {
    pub(super) const fn new(body: Incoming, wire: Wire, shelf: Arc<Shelf>) -> Self {
        Self { body, wire: Some(wire), shelf }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let mut frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_pending()
            && let Some(wire) = &mut self.wire
        {
            wire.drive(cx);
            frame = Pin::new(&mut self.body).poll_frame(cx);
        }
        match &frame {
            Poll::Ready(Some(Err(_))) => self.wire = None,
            Poll::Ready(None) => {
                let Self { wire, shelf, .. } = &mut *self;
                wire.take().into_iter().for_each(|wire| shelf.keep(wire));
            }
            _ => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        // The last byte of an announced length is the end; nobody asks for another one.
        if self.body.is_end_stream()
            && let Some(wire) = self.wire.take()
        {
            self.shelf.keep(wire);
        }
    }
}
