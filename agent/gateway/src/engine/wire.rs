//! One connection to an engine, driven by whoever uses it.
//!
//! It has no task of its own: the future that waits for an answer, and the body that is read, do its input and output. So a piece of a
//! stream wakes one task instead of two, and dropping what waits closes the socket in that moment.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use axum::http::{Request, Response};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, Connection, SendRequest},
};
use hyper_util::rt::TokioIo;

use super::link::Link;
use crate::spliced::Spliced;

/// Its input and output.
type Io = Pin<Box<Connection<TokioIo<Link>, Spliced>>>;

/// See the module.
pub(super) struct Wire {
    sender: SendRequest<Spliced>,
    /// `None` once it is over.
    io: Option<Io>,
}

impl Wire {
    /// Speaks HTTP/1.1 over a fresh connection.
    pub(super) async fn over(link: Link) -> hyper::Result<Self> {
        let (sender, io) = http1::handshake(TokioIo::new(link)).await?;
        Ok(Self { sender, io: Some(Box::pin(io)) })
    }

    /// Does what input and output there is to do.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) {
        if let Some(io) = &mut self.io
            && io.as_mut().poll(cx).is_ready()
        {
            // Whoever waits hears of its end by this.
            self.io = None;
        }
    }

    /// Whether the next request can be sent on it.
    pub(super) async fn is_free(&mut self) -> bool {
        poll_fn(|cx| {
            self.drive(cx);
            Poll::Ready(self.io.is_some() && matches!(self.sender.poll_ready(cx), Poll::Ready(Ok(()))))
        })
        .await
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn ask(&mut self, request: Request<Spliced>) -> hyper::Result<Response<Incoming>> {
        let mut answer = pin!(self.sender.send_request(request));
        let io = &mut self.io;
        poll_fn(|cx| {
            if let Some(driven) = io
                && driven.as_mut().poll(cx).is_ready()
            {
                *io = None;
            }
            answer.as_mut().poll(cx)
        })
        .await
    }
}
