//! Watches an event stream: passes whole events on as soon as they are complete, notes usage, the end mark and errors.
//!
//! An event is held until its blank line has come, so that the usage chunk can be left out and an error of ours never lands inside
//! half an event. What is held is bounded: an event that grows beyond that is passed on as it comes and not looked into. Bytes of
//! events are never rewritten; events that arrive together go on together. An error of the engine ends the stream here: it is taken
//! out, to be told as the last event, and nothing goes on behind it.

use std::{collections::VecDeque, sync::LazyLock};

use bytes::{Bytes, BytesMut};
use memchr::{memchr_iter, memmem::Finder};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use warden_domain::Problem;

use super::{End, Usage, last};
use crate::{dialects::refusal, faults, runaway::Runaway};

/// Longest event that is held back and looked into. The usage chunk has some hundred bytes.
const HELD: usize = 256 * 1024;

/// Events without any of these are not looked into.
static MARKS: LazyLock<[Finder<'static>; 3]> = LazyLock::new(|| [&b"\"usage\""[..], b"\"error\"", b"[DONE]"].map(Finder::new));

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
    fault: Option<Problem>,
    /// An event with data went on, not only comments.
    begun: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineState {
    Empty,
    OnlyCr,
    Filled,
}

impl LineState {
    /// With more bytes of the line.
    const fn with(self, more: &[u8]) -> Self {
        match (self, more) {
            (state, []) => state,
            (Self::Empty, b"\r") => Self::OnlyCr,
            _ => Self::Filled,
        }
    }
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
        Self {
            hide_usage,
            held: BytesMut::new(),
            line: LineState::Empty,
            through: false,
            usage: Usage::default(),
            done: false,
            fault: None,
            begun: false,
        }
    }

    /// Takes one chunk; complete events go to `out`.
    pub(crate) fn feed(&mut self, chunk: &Bytes, out: &mut VecDeque<Bytes>) {
        // From where nothing was passed on yet, and from where nothing was looked at yet.
        let (mut run, mut from, mut begin) = (0, 0, 0);
        for at in memchr_iter(b'\n', chunk) {
            let line = std::mem::replace(&mut self.line, LineState::Empty).with(&chunk[begin..at]);
            begin = at + 1;
            if line == LineState::Filled {
                continue;
            }
            let until = at + 1;
            if self.through || !self.held.is_empty() {
                self.event(chunk.slice(from..until), out);
                run = until;
            } else if !self.look(&chunk[from..until]) {
                pass(chunk, run, from, out);
                run = until;
            }
            from = until;
        }
        self.line = self.line.with(&chunk[begin..]);
        pass(chunk, run, from, out);
        let rest = chunk.slice(from..);
        if rest.is_empty() {
            return;
        }
        if self.through {
            out.push_back(rest);
        } else if self.held.len() + rest.len() > HELD {
            (self.through, self.begun) = (true, true);
            self.release(out);
            out.push_back(rest);
        } else {
            self.held.extend_from_slice(&rest);
        }
    }

    /// Whether the client has something of the answer itself.
    pub(crate) const fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether what went on ends in the middle of an event.
    pub(crate) const fn is_inside_an_event(&self) -> bool {
        self.through
    }

    /// Forgets what came of an engine that was lost; false when the client has something of it.
    pub(crate) fn restart(&mut self) -> bool {
        if !self.begun {
            *self = Self::new(self.hide_usage);
        }
        !self.begun
    }

    /// The stream closed properly; lets go of what is held.
    pub(crate) fn finish(&mut self, out: &mut VecDeque<Bytes>) -> End {
        let rest = self.held.split().freeze();
        // A last event without its blank line counts when it is the end mark: some servers end right behind it. Half an event helps nobody.
        if !rest.is_empty() && self.look(&rest) && self.done {
            out.push_back(rest);
        }
        match (&self.fault, self.done) {
            (Some(problem), _) => End::Failed(problem.clone()),
            (None, true) => End::Whole,
            (None, false) => End::Failed(faults::broke_off()),
        }
    }

    /// Ends the stream as if the answer had come to its limit; half an event that is held is left out.
    pub(crate) fn cut_short(&mut self, how: Runaway, out: &mut VecDeque<Bytes>) {
        self.held.clear();
        if std::mem::take(&mut self.through) {
            // Half an event went out already: its line ends here, and clients leave out what they cannot read.
            out.push_back(Bytes::from_static(b"\n\n"));
        }
        let last = last::chunk(out.iter().rev().flat_map(|events| last_events(events)), how);
        out.push_back(Bytes::from(format!("data: {last}\n\ndata: [DONE]\n\n")));
        self.done = true;
    }

    /// What the engine failed with inside the stream.
    pub(crate) const fn fault(&self) -> Option<&Problem> {
        self.fault.as_ref()
    }

    /// Usage seen so far; of several the last counts.
    pub(crate) const fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether the end mark went by without an error before it.
    pub(crate) const fn reached_end(&self) -> bool {
        self.done && self.fault.is_none()
    }

    /// An event of which a part was held, or passed on, is complete with `tail`.
    fn event(&mut self, tail: Bytes, out: &mut VecDeque<Bytes>) {
        if std::mem::take(&mut self.through) {
            out.push_back(tail);
            return;
        }
        self.held.extend_from_slice(&tail);
        let event = self.held.split().freeze();
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
        let goes_on = self.is_for_the_client(event);
        self.begun |= goes_on && !event.starts_with(b":") && !event.starts_with(b"\n") && !event.starts_with(b"\r");
        goes_on
    }

    fn is_for_the_client(&mut self, event: &[u8]) -> bool {
        if self.fault.is_some() {
            return false;
        }
        if event.len() > HELD {
            return true;
        }
        if !MARKS.iter().any(|mark| mark.find(event).is_some()) && !event.starts_with(b"error") {
            return true;
        }
        let data = data_of(event);
        if data == b"[DONE]" {
            self.done = true;
            return true;
        }
        let Ok(chunk) = serde_json::from_slice::<Chunk<'_>>(&data) else { return true };
        if chunk.error.is_some() || event.starts_with(b"error") {
            self.fault = Some(refusal::in_stream(&data));
            return false;
        }
        let Some(usage) = chunk.usage else { return true };
        self.usage = Usage::read(usage.get().as_bytes());
        let only_usage = chunk.choices.is_some_and(|c| serde_json::from_str::<Vec<IgnoredAny>>(c.get()).is_ok_and(|list| list.is_empty()));
        !(self.hide_usage && only_usage)
    }
}

/// Passes a part of a chunk on, if there is any.
fn pass(chunk: &Bytes, from: usize, until: usize, out: &mut VecDeque<Bytes>) {
    if from < until {
        out.push_back(chunk.slice(from..until));
    }
}

/// The data of the events in a piece, the newest first.
fn last_events(piece: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let lines = piece.split(|b| *b == b'\n').rev().map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.filter(|line| line.starts_with(b"data:")).map(data_of)
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
        let cut = End::Failed(faults::broke_off());
        assert_eq!(run(&[b"data: {\"choices\":[]}\n\n"], true).2, cut);
        assert_eq!(run(&[b"data: [DONE]"], true), (b"data: [DONE]".to_vec(), Usage::default(), End::Whole));
        assert_eq!(run(&[b"data: {\"choices\":[{\"delta\":{\"content\":\"\\\"error\\\" [DONE]\"}}]}\n\n"], true).2, cut);
        assert_eq!(run(&[b"data: {\"half"], true), (Vec::new(), Usage::default(), cut), "half an event is not passed on");
    }

    #[test]
    fn an_error_of_the_engine_is_taken_out_with_all_that_follows() {
        for error in ["data: {\"error\":{\"message\":\"boom\"}}\n\n", "error: {\"message\":\"boom\",\"code\":500}\n\n"] {
            let text = format!("data: {{\"choices\":[]}}\n\n{error}data: [DONE]\n\n");
            let (bytes, _, end) = run(&[text.as_bytes()], true);
            assert_eq!(bytes, b"data: {\"choices\":[]}\n\n");
            let End::Failed(problem) = end else { panic!("{end:?}") };
            assert_eq!(problem.message, "boom");
        }
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
            let (passed, whole) = (run(&refs, true).0, pieces.concat());
            prop_assert!(whole.starts_with(&passed) && !whole[passed.len()..].windows(2).any(|w| w == b"\n\n"), "only the last event without an end is kept back");
        }
    }
}
