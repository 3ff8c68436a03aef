//! A connection whose client does not read: writing fails after a while without progress, so that neither it nor what is waiting to be
//! written stays for ever.
//!
//! Over HTTP/1 this is also what lets an engine go whose client stopped reading its answer: the answer is made by whoever writes it.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// See the module.
pub struct Impatient<S> {
    stream: S,
    patience: Duration,
    timer: Pin<Box<Sleep>>,
    /// The timer runs since the first write that had to wait.
    waits: bool,
}

impl<S> Impatient<S> {
    /// A connection on which a write that gets nowhere for `patience` fails.
    pub fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, timer: Box::pin(tokio::time::sleep(patience)), waits: false }
    }

    fn judge(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waits = false;
            return written;
        }
        if !self.waits {
            self.waits = true;
            self.timer.as_mut().reset(Instant::now() + self.patience);
        }
        self.timer.as_mut().poll(cx).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_write_that_gets_nowhere_fails_and_one_that_is_read_slowly_does_not() {
        let ms = Duration::from_millis;
        let (mut client, server) = tokio::io::duplex(64);
        let mut server = Impatient::new(server, ms(400));
        let reading = tokio::spawn(async move {
            for _ in 0..10 {
                tokio::time::sleep(ms(60)).await;
                client.read_exact(&mut [0; 64]).await.unwrap();
            }
            client
        });
        server.write_all(&[0; 64 * 10]).await.unwrap();
        let _unread = reading.await.unwrap();
        server.write_all(&[0; 64]).await.unwrap();
        let begun = Instant::now();
        let failed = server.write_all(b"more").await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= ms(400));
    }
}
