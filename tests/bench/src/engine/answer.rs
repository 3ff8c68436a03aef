//! What the engine answers: whole, or event by event with each event a write of its own.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::Open;
use crate::bodies::Answer;

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Chat,
    Messages,
}

/// How a streamed answer was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Streamed {
    /// With usage at its end.
    pub usage: bool,
}

/// Reads out of a request what decides its answer. It is searched for, not parsed: nobody else's time is to be spent here.
pub(super) fn wanted(body: &[u8]) -> (Answer, Option<Streamed>) {
    let number = after(body, b"\"max_tokens\"").or_else(|| after(body, b"\"max_completion_tokens\"")).map_or(0, digits);
    let is_true = |name: &[u8]| after(body, name).is_some_and(|rest| rest.starts_with(b"true"));
    let streamed = is_true(b"\"stream\"").then(|| Streamed { usage: is_true(b"\"include_usage\"") });
    (Answer::from_max_tokens(number), streamed)
}

fn digits(text: &[u8]) -> u32 {
    text.iter().take_while(|b| b.is_ascii_digit()).fold(0u32, |n, b| n.wrapping_mul(10).wrapping_add(u32::from(b - b'0')))
}

/// What stands behind the last `"name":`.
fn after<'a>(body: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = rfind(body, name)?;
    let rest = &body[at + name.len()..];
    let start = rest.iter().position(|b| !matches!(b, b' ' | b':' | b'\n'))?;
    Some(&rest[start..])
}

/// From both ends: the members stand before or behind the long texts.
fn rfind(body: &[u8], name: &[u8]) -> Option<usize> {
    const NEAR: usize = 512;
    let head = &body[..body.len().min(NEAR)];
    let tail_from = body.len().saturating_sub(NEAR);
    let inside = |part: &[u8]| part.windows(name.len()).rposition(|w| w == name);
    inside(&body[tail_from..]).map(|at| at + tail_from).or_else(|| inside(head)).or_else(|| inside(body))
}

/// The body of an answer.
pub(super) struct Body {
    ready: VecDeque<Bytes>,
    event: Bytes,
    left: u32,
    last: VecDeque<Bytes>,
    pause: Option<Duration>,
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    yielded: bool,
    length: Option<u64>,
    _open: Option<Open>,
}

impl Body {
    /// One piece.
    pub(super) fn whole(text: Bytes, open: Option<Open>) -> Self {
        let length = Some(text.len() as u64);
        Self {
            ready: VecDeque::from([text]),
            event: Bytes::new(),
            left: 0,
            last: VecDeque::new(),
            pause: None,
            sleep: None,
            yielded: true,
            length,
            _open: open,
        }
    }

    /// The answer to a request.
    pub(super) fn of(dialect: Dialect, answer: Answer, streamed: Option<Streamed>, model: &str, open: Open) -> Self {
        let Some(streamed) = streamed else { return Self::whole(whole(dialect, model), Some(open)) };
        let (first, event, last) = events(dialect, model, streamed.usage);
        Self {
            ready: VecDeque::from([first]),
            event,
            left: answer.events,
            last: last.into(),
            pause: answer.pause,
            sleep: None,
            yielded: false,
            length: None,
            _open: Some(open),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(bytes) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if self.left > 0 {
            if let Some(pause) = self.pause {
                let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.sleep = None;
            } else if !std::mem::take(&mut self.yielded) {
                // What is there is written before the next event comes: engines make tokens one at a time.
                self.yielded = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.left -= 1;
            return Poll::Ready(Some(Ok(Frame::data(self.event.clone()))));
        }
        match self.last.pop_front() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            None => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

fn whole(dialect: Dialect, model: &str) -> Bytes {
    const SAID: &str = "The gateway adds nothing to this sentence, takes nothing from it, and should not spend long on it either.";
    Bytes::from(match dialect {
        Dialect::Chat => format!(
            r#"{{"id":"chatcmpl-bench","object":"chat.completion","created":1,"model":"{model}","choices":[{{"index":0,"message":{{"role":"assistant","content":"{SAID}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":200,"completion_tokens":24,"total_tokens":224,"prompt_tokens_details":{{"cached_tokens":128}}}}}}"#
        ),
        Dialect::Messages => format!(
            r#"{{"id":"msg_bench","type":"message","role":"assistant","model":"{model}","content":[{{"type":"text","text":"{SAID}"}}],"stop_reason":"end_turn","stop_sequence":null,"usage":{{"input_tokens":72,"cache_read_input_tokens":128,"output_tokens":24}}}}"#
        ),
    })
}

/// First event, the one that is repeated, the last ones.
fn events(dialect: Dialect, model: &str, usage: bool) -> (Bytes, Bytes, Vec<Bytes>) {
    match dialect {
        Dialect::Chat => {
            let chunk = |delta: &str, finish: &str| {
                Bytes::from(format!(
                    "data: {{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"{model}\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
                ))
            };
            let mut last = vec![chunk("{}", "\"stop\"")];
            if usage {
                last.push(Bytes::from(format!(
                    "data: {{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"{model}\",\"choices\":[],\"usage\":{{\"prompt_tokens\":200,\"completion_tokens\":24,\"total_tokens\":224}}}}\n\n"
                )));
            }
            last.push(Bytes::from_static(b"data: [DONE]\n\n"));
            (chunk(r#"{"role":"assistant","content":""}"#, "null"), chunk(r#"{"content":" words"}"#, "null"), last)
        }
        Dialect::Messages => {
            let event = |name: &str, data: &str| Bytes::from(format!("event: {name}\ndata: {data}\n\n"));
            let start = format!(
                r#"{{"type":"message_start","message":{{"id":"msg_bench","type":"message","role":"assistant","model":"{model}","content":[],"stop_reason":null,"stop_sequence":null,"usage":{{"input_tokens":72,"output_tokens":1}}}}}}"#
            );
            let mut first = event("message_start", &start).to_vec();
            first.extend_from_slice(&event(
                "content_block_start",
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            ));
            let last = vec![
                event("content_block_stop", r#"{"type":"content_block_stop","index":0}"#),
                event(
                    "message_delta",
                    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":24}}"#,
                ),
                event("message_stop", r#"{"type":"message_stop"}"#),
            ];
            let delta = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" words"}}"#;
            (Bytes::from(first), event("content_block_delta", delta), last)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_what_its_answer_looks_like_however_it_is_written() {
        let tight = br#"{"model":"m","stream":true,"max_tokens":200,"stream_options":{"include_usage":true},"messages":[]}"#;
        let wide = br#"{ "messages": [], "max_tokens": 200, "stream": true, "stream_options": { "include_usage": true } }"#;
        let wish = (Answer { events: 200, pause: None }, Some(Streamed { usage: true }));
        assert_eq!(wanted(tight), wish);
        assert_eq!(wanted(wide), wish);
        assert_eq!(wanted(br#"{"model":"m","max_tokens":1}"#), (Answer { events: 1, pause: None }, None));
    }

    #[test]
    fn members_are_found_between_long_texts_too() {
        let long = "x".repeat(5000);
        let body = format!(r#"{{"a":"{long}","max_tokens":7,"stream":true,"b":"{long}"}}"#);
        assert_eq!(wanted(body.as_bytes()), (Answer { events: 7, pause: None }, Some(Streamed { usage: false })));
    }
}
