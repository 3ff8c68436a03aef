//! A body with a few places changed, without a copy of the rest: parts of the original, and between them what is new.
//!
//! It goes to an engine as it is: the parts are written to the socket in one call.

use std::{
    collections::VecDeque,
    convert::Infallible,
    ops::Range,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// See the module. No part is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spliced {
    parts: VecDeque<Bytes>,
}

impl Spliced {
    /// A body with changes: places in their order, none over another, and what is to stand there.
    pub(crate) fn of(body: &Bytes, changes: impl IntoIterator<Item = (Range<usize>, Bytes)>) -> Self {
        let (mut parts, mut from) = (VecDeque::new(), 0);
        for (place, new) in changes {
            parts.extend([body.slice(from..place.start), new]);
            from = place.end;
        }
        parts.push_back(body.slice(from..));
        parts.retain(|part| !part.is_empty());
        Self { parts }
    }

    /// All of it in one piece; costs a copy where there were changes.
    pub(crate) fn to_bytes(&self) -> Bytes {
        if self.parts.len() == 1 {
            return self.parts[0].clone();
        }
        self.parts.iter().flatten().copied().collect()
    }

    fn len(&self) -> u64 {
        self.parts.iter().map(|part| part.len() as u64).sum()
    }
}

impl<T: Into<Bytes>> From<T> for Spliced {
    fn from(whole: T) -> Self {
        Self::of(&whole.into(), [])
    }
}

impl Body for Spliced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.parts.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn what_is_sent_is_the_body_with_its_changes_and_its_length_is_told_before() {
        let body = Bytes::from_static(b"0123456789");
        let new = |text: &'static str| Bytes::from_static(text.as_bytes());
        for (changes, expected) in [
            (vec![], "0123456789"),
            (vec![(0..0, new("a")), (10..10, new("z"))], "a0123456789z"),
            (vec![(0..4, new("")), (4..4, new("b")), (5..10, new("null"))], "b4null"),
            (vec![(0..10, new(""))], ""),
        ] {
            let spliced = Spliced::of(&body, changes);
            assert_eq!(spliced.size_hint().exact(), Some(expected.len() as u64));
            assert_eq!(spliced.to_bytes(), expected);
            assert_eq!(spliced.collect().await.unwrap().to_bytes(), expected);
        }
    }

    #[test]
    fn a_body_without_changes_is_not_copied() {
        let body = Bytes::from(vec![b'x'; 100]);
        assert_eq!(Spliced::of(&body, []).to_bytes().as_ptr(), body.as_ptr());
    }
}
