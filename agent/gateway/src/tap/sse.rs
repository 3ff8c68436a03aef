//! Watches an event stream: passes whole events on as soon as they are complete, notes usage, the end mark and errors.
//!
//! An event is held until its blank line has come, so that the usage chunk can be left out and an error of ours never lands inside
//! half an event. What is held is bounded: an event that grows beyond that is passed on as it comes and not looked into. Bytes of
//! events are never rewritten.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{End, Usage, last};
use crate::runaway::Runaway;

/// Longest event that is held back and looked into. The usage chunk has some hundred bytes.
const HELD: usize = 256 * 1024;

/// See the module.
pub(crate) struct SseTap {
    hide_usage: bool,
    held: BytesMut,
    /// Bytes on the current line so far, a trailing CR not counted.
    line: LineState,
    /// The current event outgrew `HELD` and goes straight through.
    through: bool,
    usage: Usage,
    done: bool,
    failed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineState {
    Empty,
    OnlyCr,
    Filled,
}

/// What matters in a chunk's JSON.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    choices: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl SseTap {
    /// `hide_usage`: the client did not ask for the usage chunk, so it is left out.
    pub(crate) fn new(hide_usage: bool) -> Self {
        Self { hide_usage, held: BytesMut::new(), line: LineState::Empty, through: false, usage: Usage::default(), done: false, failed: false }
    }

    /// Takes one chunk; complete events go to `out`.
    pub(crate) fn feed(&mut self, chunk: &Bytes, out: &mut VecDeque<Bytes>) {
        let mut from = 0;
        for (at, &byte) in chunk.iter().enumerate() {
            let blank = match byte {
                b'\n' => std::mem::replace(&mut self.line, LineState::Empty) != LineState::Filled,
                b'\r' if self.line == LineState::Empty => {
                    self.line = LineState::OnlyCr;
                    false
                }
                _ => {
                    self.line = LineState::Filled;
                    false
                }
            };
            if blank {
                self.event(chunk.slice(from..=at), out);
                from = at + 1;
            }
        }
        let rest = chunk.slice(from..);
        if rest.is_empty() {
            return;
        }
        if self.through {
            out.push_back(rest);
        } else if self.held.len() + rest.len() > HELD {
            self.through = true;
            self.release(out);
            out.push_back(rest);
        } else {
            self.held.extend_from_slice(&rest);
        }
    }

    /// The stream closed properly; lets go of what is held.
    pub(crate) fn finish(&mut self, out: &mut VecDeque<Bytes>) -> End {
        let rest = self.held.split().freeze();
        // A last event without its blank line is still looked into: some servers end right behind the mark.
        if !rest.is_empty() && self.look(&rest) {
            out.push_back(rest);
        }
        match (self.failed, self.done) {
            (true, _) => End::Failed,
            (false, true) => End::Whole,
            (false, false) => End::Cut,
        }
    }

    /// Ends the stream as if the answer had come to its limit; half an event that is held is left out.
    pub(crate) fn cut_short(&mut self, how: Runaway, out: &mut VecDeque<Bytes>) {
        self.held.clear();
        if std::mem::take(&mut self.through) {
            // Half an event went out already: its line ends here, and clients leave out what they cannot read.
            out.push_back(Bytes::from_static(b"\n\n"));
        }
        let last = last::chunk(out.iter().rev().map(|event| data_of(event)), how);
        out.push_back(Bytes::from(format!("data: {last}\n\ndata: [DONE]\n\n")));
        self.done = true;
    }

    /// Usage seen so far; of several the last counts.
    pub(crate) const fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether the end mark went by without an error before it.
    pub(crate) const fn reached_end(&self) -> bool {
        self.done && !self.failed
    }

    /// An event is complete with `tail`.
    fn event(&mut self, tail: Bytes, out: &mut VecDeque<Bytes>) {
        if std::mem::take(&mut self.through) {
            out.push_back(tail);
            return;
        }
        let event = if self.held.is_empty() {
            tail
        } else {
            self.held.extend_from_slice(&tail);
            self.held.split().freeze()
        };
        if self.look(&event) {
            out.push_back(event);
        }
    }

    fn release(&mut self, out: &mut VecDeque<Bytes>) {
        if !self.held.is_empty() {
            out.push_back(self.held.split().freeze());
        }
    }

    /// Looks into one event; false when it is to be left out.
    fn look(&mut self, event: &[u8]) -> bool {
        if event.len() > HELD {
            return true;
        }
        if !contains(event, b"\"usage\"") && !contains(event, b"\"error\"") && !contains(event, b"[DONE]") {
            return true;
        }
        let data = data_of(event);
        if data == b"[DONE]" {
            self.done = true;
            return true;
        }
        let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(&data) else { return true };
        self.failed |= chunk.error.is_some();
        let Some(usage) = chunk.usage else { return true };
        self.usage = Usage::read(usage.get().as_bytes());
        let only_usage = chunk.choices.is_some_and(|c| serde_json::from_str::<Vec<IgnoredAny>>(c.get()).is_ok_and(|list| list.is_empty()));
        !(self.hide_usage && only_usage)
    }
}

/// The data of an event: its `data:` lines joined, without the name and one blank.
fn data_of(event: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(event.len());
    for line in event.split(|b| *b == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(value) = line.strip_prefix(b"data:").or_else(|| line.strip_prefix(b"error:")) else { continue };
        if !data.is_empty() {
            data.push(b'\n');
        }
        data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
    }
    data
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|w| w == needle)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use warden_domain::units::Tokens;

    use super::*;

    const USAGE: &str = "data: {\"choices\":[],\"object\":\"chat.completion.chunk\",\"usage\":{\"completion_tokens\":5,\"prompt_tokens\":29,\"prompt_tokens_details\":{\"cached_tokens\":1}}}\n\n";

    /// A stream as an engine sends it: comments, text that talks about usage, code points of several bytes, the usage chunk, the end.
    fn stream(newline: &str) -> (String, String) {
        let before = ": ping\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n\
             data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\\"usage\\\": {\\\"prompt_tokens\\\": 3} héllo 🦙\"}}],\"usage\":null}\n\n\
             event: x\ndata: {\"choices\":[{\"finish_reason\":\"length\",\"index\":0,\"delta\":{}}]}\n\n";
        let end = "data: [DONE]\n\n";
        let with = |middle: &str| format!("{before}{middle}{end}").replace('\n', newline);
        (with(USAGE), with(""))
    }

    fn run(pieces: &[&[u8]], hide: bool) -> (Vec<u8>, Usage, End) {
        let mut tap = SseTap::new(hide);
        let mut out = VecDeque::new();
        for piece in pieces {
            tap.feed(&Bytes::copy_from_slice(piece), &mut out);
        }
        let end = tap.finish(&mut out);
        (out.make_contiguous().concat(), tap.usage(), end)
    }

    #[test]
    fn a_client_sees_the_usage_chunk_only_if_it_asked_whatever_byte_the_stream_is_cut_at() {
        for newline in ["\n", "\r\n"] {
            let (with, without) = stream(newline);
            for at in 0..=with.len() {
                let pieces = [&with.as_bytes()[..at], &with.as_bytes()[at..]];
                for (hide, expected) in [(false, &with), (true, &without)] {
                    let (bytes, usage, end) = run(&pieces, hide);
                    assert_eq!(String::from_utf8(bytes).unwrap(), *expected, "cut at {at}");
                    assert_eq!((usage.prompt, usage.cached, usage.completion), (Some(Tokens(29)), Some(Tokens(1)), Some(Tokens(5))));
                    assert_eq!(end, End::Whole);
                }
            }
        }
    }

    #[test]
    fn an_event_goes_on_as_soon_as_it_is_complete() {
        let mut tap = SseTap::new(true);
        let mut out = VecDeque::new();
        tap.feed(&Bytes::from_static(b"data: {\"a\":1}\n\ndata: {\"b\""), &mut out);
        assert_eq!(out.pop_front().unwrap(), "data: {\"a\":1}\n\n");
        assert!(out.is_empty());
        tap.feed(&Bytes::from_static(b":2}\n\n"), &mut out);
        assert_eq!(out.pop_front().unwrap(), "data: {\"b\":2}\n\n");
    }

    #[test]
    fn a_stream_that_stops_before_its_end_mark_is_not_whole() {
        assert_eq!(run(&[b"data: {\"choices\":[]}\n\n"], true).2, End::Cut);
        assert_eq!(run(&[b"data: [DONE]"], true).2, End::Whole);
        assert_eq!(run(&[b"data: {\"error\":{\"message\":\"boom\"}}\n\ndata: [DONE]\n\n"], true).2, End::Failed);
        assert_eq!(run(&[b"data: {\"choices\":[{\"delta\":{\"content\":\"\\\"error\\\" [DONE]\"}}]}\n\n"], true).2, End::Cut);
    }

    #[test]
    fn an_event_of_a_megabyte_passes_and_is_not_collected() {
        let big = format!("data: {{\"choices\":[{{\"text\":\"{}\"}}]}}\n\n{USAGE}data: [DONE]\n\n", "x".repeat(1_000_000));
        let mut tap = SseTap::new(true);
        let (mut out, mut most) = (VecDeque::new(), 0);
        for piece in big.as_bytes().chunks(7000) {
            tap.feed(&Bytes::copy_from_slice(piece), &mut out);
            most = most.max(tap.held.len());
        }
        assert_eq!(tap.finish(&mut out), End::Whole);
        assert_eq!(out.make_contiguous().concat(), big.replace(USAGE, "").into_bytes());
        assert!(most <= HELD && tap.usage().prompt == Some(Tokens(29)));
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_bytes_and_the_same_usage(cuts in prop::collection::vec(0usize..700, 0..40), crlf in any::<bool>(), hide in any::<bool>()) {
            let (with, without) = stream(if crlf { "\r\n" } else { "\n" });
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(with.len())).chain([0, with.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &with.as_bytes()[w[0]..w[1]]).collect();
            let (bytes, usage, end) = run(&pieces, hide);
            prop_assert_eq!(bytes, if hide { without } else { with }.into_bytes());
            prop_assert_eq!(usage.completion, Some(Tokens(5)));
            prop_assert_eq!(end, End::Whole);
        }

        #[test]
        fn rubbish_passes_unchanged(pieces in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..50), 0..10)) {
            let refs: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            prop_assert_eq!(run(&refs, true).0, pieces.concat());
        }
    }
}
