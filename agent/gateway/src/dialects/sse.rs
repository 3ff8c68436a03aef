//! Takes a stream of server-sent events apart, whatever byte it is cut at.
//!
//! In: chunks of bytes. Out: the data of each event once its blank line has come: `data` lines joined by line feeds, without the name
//! and one blank. Lines end in LF, CRLF or CR. Comments, names, ids and retry times say nothing here. A field `error` counts as data,
//! because one engine tells its errors so. Nothing is decoded: a code point may be cut anywhere.

/// Longest event that is collected; no engine sends one half as long.
const LONGEST: usize = 16 * 1024 * 1024;

/// Collects events.
#[derive(Debug, Default)]
pub struct Framer {
    /// The line that has begun.
    line: Vec<u8>,
    /// Data of the event that has begun.
    data: Vec<u8>,
    /// The event has a data line, be it an empty one.
    filled: bool,
    /// The last byte was a CR, so a LF now belongs to it.
    after_cr: bool,
    /// Something was read, so that a mark of byte order is none.
    begun: bool,
    /// The event outgrew all bounds.
    too_long: bool,
}

/// An event is longer than anything an engine sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the engine's stream is longer than 16 MiB")]
pub struct TooLong;

impl Framer {
    /// Takes a chunk and gives the data of each event that is complete with it.
    ///
    /// # Errors
    /// `TooLong` when an event grows beyond 16 MiB; the stream is of no use then.
    pub fn feed(&mut self, mut chunk: &[u8], mut event: impl FnMut(&[u8])) -> Result<(), TooLong> {
        if self.after_cr && !chunk.is_empty() {
            self.after_cr = false;
            chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
        }
        while let Some(at) = chunk.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            let (line, rest) = chunk.split_at(at);
            if self.line.is_empty() {
                self.end_of_line(line, &mut event);
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.end_of_line(&whole, &mut event);
                whole.clear();
                self.line = whole;
            }
            chunk = match rest {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                rest => &rest[1..],
            };
        }
        self.line.extend_from_slice(chunk);
        if self.too_long || self.line.len() > LONGEST { Err(TooLong) } else { Ok(()) }
    }

    /// The stream ended: an event without its blank line counts all the same, because some servers end right behind the mark.
    pub fn finish(&mut self, mut event: impl FnMut(&[u8])) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_of_line(&line, &mut event);
        }
        self.end_of_line(b"", &mut event);
    }

    fn end_of_line(&mut self, line: &[u8], event: &mut impl FnMut(&[u8])) {
        let line = if std::mem::replace(&mut self.begun, true) { line } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) };
        if line.is_empty() {
            if std::mem::take(&mut self.filled) {
                event(&self.data);
                self.data.clear();
            }
            return;
        }
        let value = match line.strip_prefix(b"data").or_else(|| line.strip_prefix(b"error")) {
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => value,
            Some([]) => &[],
            _ => return,
        };
        if self.data.len() + value.len() > LONGEST {
            self.too_long = true;
            return;
        }
        if std::mem::replace(&mut self.filled, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let (mut framer, mut out) = (Framer::default(), Vec::new());
        for piece in pieces {
            framer.feed(piece, |data| out.push(String::from_utf8(data.to_vec()).unwrap())).unwrap();
        }
        framer.finish(|data| out.push(String::from_utf8(data.to_vec()).unwrap()));
        out
    }

    const STREAM: &str = ": ping\n\nevent: x\nid: 7\ndata: {\"a\":\"héllo 🦙\"}\n\ndata:first\ndata:  second\ndata\n\nretry: 5\n\nerror: {\"code\":500}\n\ndata: [DONE]";

    #[test]
    fn a_stream_cut_at_any_byte_gives_the_same_events_with_any_line_end() {
        let expected = vec!["{\"a\":\"héllo 🦙\"}", "first\n second\n", "{\"code\":500}", "[DONE]"];
        for newline in ["\n", "\r\n", "\r"] {
            for start in ["", "\u{feff}"] {
                let text = format!("{start}{}", STREAM.replace('\n', newline));
                for at in 0..=text.len() {
                    assert_eq!(events(&[&text.as_bytes()[..at], b"", &text.as_bytes()[at..]]), expected, "{newline:?} cut at {at}");
                }
            }
        }
    }

    #[test]
    fn one_event_of_a_megabyte_and_ten_in_one_chunk_are_all_read() {
        let big = "x".repeat(1 << 20);
        let text = format!("data: {big}\n\n{}", "data: y\n\n".repeat(10));
        let got = events(&text.as_bytes().chunks(7000).collect::<Vec<_>>());
        assert_eq!((got[0].len(), got.len()), (1 << 20, 11));
    }

    #[test]
    fn an_endless_event_is_given_up() {
        let mut framer = Framer::default();
        let chunk = vec![b'x'; 1 << 20];
        let mut given_up = false;
        for _ in 0..20 {
            given_up |= framer.feed(&chunk, |_| {}).is_err();
        }
        assert!(given_up);
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(cuts in prop::collection::vec(0usize..200, 0..20), crlf in any::<bool>()) {
            let text = STREAM.replace('\n', if crlf { "\r\n" } else { "\n" });
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &text.as_bytes()[w[0]..w[1]]).collect();
            prop_assert_eq!(events(&pieces), events(&[text.as_bytes()]));
        }

        #[test]
        fn rubbish_is_read_without_a_fault(pieces in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), any::<u8>()], 0..20), 0..6)) {
            let mut framer = Framer::default();
            for piece in &pieces {
                let read = framer.feed(piece, |_| {});
                prop_assert!(read.is_ok());
            }
            framer.finish(|_| {});
        }
    }
}
