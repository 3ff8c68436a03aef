//! A walk over JSON bytes without a tree and nearly without copies: requests of 200 KB pass here on their way to an engine.
//!
//! It looks for the ends of strings many bytes at a time and takes the texts between them as they are written. It reads all of the JSON
//! standard and nothing else, given bytes that are UTF-8, so what it has read needs no second reader to find out whether it is JSON.
//! `None` everywhere: no JSON, or nested beyond reason.

use std::borrow::Cow;

use memchr::memchr;

/// Deepest nesting that is followed.
const DEEPEST: u32 = 128;
/// Most levels of a body. llama.cpp died of 30,000 in a tool's schema (60 KB), and took other people's answers along; no request has thirty.
pub const MOST_NESTED: usize = 1000;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    Text,
    Number,
    Bool,
    Null,
}

/// A text as it is written between its quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    raw: &'a [u8],
    /// It may hold escapes that other writers do not use.
    spelled: bool,
}

/// See the module.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
    /// It reads what stood inside a text.
    quoted: bool,
    /// The brackets that close what `skip` has opened.
    open: Vec<u8>,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, depth: 0, quoted: false, open: Vec::new() }
    }

    /// A reader for what a text of this one says: as deep as the text itself.
    pub(crate) const fn inside<'b>(&self, text: &'b [u8]) -> Reader<'b> {
        Reader { bytes: text, at: 0, depth: self.depth, quoted: true, open: Vec::new() }
    }

    /// Whether it reads what stood inside a text.
    pub(crate) const fn is_quoted(&self) -> bool {
        self.quoted
    }

    /// Where it stands.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Reads a value in one way, and skips it where that way does not fit; `None`: neither did.
    pub(crate) fn read_or_skip<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        let before = (self.at, self.depth);
        let done = read(self);
        if done.is_none() {
            (self.at, self.depth) = before;
            self.skip()?;
        }
        Some(done)
    }

    /// What comes next.
    pub(crate) fn kind(&mut self) -> Option<Kind> {
        Some(match self.peek()? {
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            b'"' => Kind::Text,
            b't' | b'f' => Kind::Bool,
            b'n' => Kind::Null,
            b'-' | b'0'..=b'9' => Kind::Number,
            _ => return None,
        })
    }

    /// Whether nothing follows.
    pub(crate) fn is_at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// A text.
    pub(crate) fn text(&mut self) -> Option<Text<'a>> {
        self.expect(b'"')?;
        let (from, mut look) = (self.at, self.at);
        // Clients differ in two kinds of escapes only; a text that has neither is compared as it is written.
        let mut spelled = false;
        loop {
            look += plain(self.bytes.get(look..)?);
            match self.bytes.get(look)? {
                b'"' => break,
                b'\\' => {}
                _ => return None,
            }
            look += match self.bytes.get(look + 1)? {
                b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                b'/' => {
                    spelled = true;
                    2
                }
                b'u' => {
                    spelled = true;
                    hex(self.bytes.get(look + 2..look + 6))?;
                    6
                }
                _ => return None,
            };
        }
        let raw = &self.bytes[from..look];
        self.at = look + 1;
        Some(Text { raw, spelled })
    }

    /// A number, a truth or null, as it is written.
    pub(crate) fn scalar(&mut self) -> Option<&'a [u8]> {
        self.peek()?;
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|b| matches!(b, b',' | b'}' | b']' | b':' | b' ' | b'\n' | b'\r' | b'\t')).unwrap_or(rest.len());
        let word = &rest[..len];
        self.at += len;
        (matches!(word, b"true" | b"false" | b"null") || is_number(word)).then_some(word)
    }

    /// An object: `each` is called behind every name and must read the value.
    pub(crate) fn object(&mut self, mut each: impl FnMut(&mut Self, Text<'a>) -> Option<()>) -> Option<()> {
        self.list(b'{', b'}', |reader| {
            let name = reader.text()?;
            reader.expect(b':')?;
            each(reader, name)
        })
    }

    /// An array: `each` is called before every value and must read it.
    pub(crate) fn array(&mut self, each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.list(b'[', b']', each)
    }

    fn list(&mut self, open: u8, close: u8, mut each: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(open)?;
        self.depth += 1;
        if self.depth > DEEPEST {
            return None;
        }
        if self.peek()? == close {
            self.at += 1;
        } else {
            loop {
                each(self)?;
                let next = self.peek()?;
                self.at += 1;
                match next {
                    b',' => {}
                    b if b == close => break,
                    _ => return None,
                }
            }
        }
        self.depth -= 1;
        Some(())
    }

    /// Any value, not looked into.
    pub(crate) fn skip(&mut self) -> Option<()> {
        match self.kind()? {
            Kind::Text => self.text().map(drop),
            Kind::Object | Kind::Array => self.skip_nested(),
            Kind::Number | Kind::Bool | Kind::Null => self.scalar().map(drop),
        }
    }

    /// Nothing is called again here, however deep it is. What is deeper than `MOST_NESTED` is refused for those behind: they do call again.
    fn skip_nested(&mut self) -> Option<()> {
        self.open.clear();
        loop {
            match self.peek()? {
                b'"' => self.text().map(drop)?,
                bracket @ (b'{' | b'[') => {
                    self.at += 1;
                    let close = if bracket == b'{' { b'}' } else { b']' };
                    if self.peek()? == close {
                        self.at += 1;
                    } else {
                        self.open.push(close);
                        if self.depth as usize + self.open.len() > MOST_NESTED {
                            return None;
                        }
                        self.name_in(close)?;
                        continue;
                    }
                }
                _ => self.scalar().map(drop)?,
            }
            // A value ends here, and with it perhaps those it stands in.
            loop {
                let Some(&close) = self.open.last() else { return Some(()) };
                let next = self.peek()?;
                self.at += 1;
                if next == b',' {
                    self.name_in(close)?;
                    break;
                }
                if next != close {
                    return None;
                }
                self.open.pop();
            }
        }
    }

    /// In an object a name stands before each value.
    fn name_in(&mut self, close: u8) -> Option<()> {
        if close == b'}' {
            self.text()?;
            self.expect(b':')?;
        }
        Some(())
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.bytes.get(self.at)? {
                b' ' | b'\n' | b'\r' | b'\t' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }
}

impl<'a> Text<'a> {
    /// The same bytes for the same text, whatever escapes it was written with: two-letter escapes where JSON has one, and letters
    /// themselves everywhere else.
    pub(crate) fn canonical(self) -> Cow<'a, [u8]> {
        if !self.spelled {
            return Cow::Borrowed(self.raw);
        }
        self.respelled(|escape, out| match escape {
            Escape::Short(letter) => out.extend_from_slice(&[b'\\', letter]),
            Escape::Code(code) => match code {
                0x22 => out.extend_from_slice(b"\\\""),
                0x5c => out.extend_from_slice(b"\\\\"),
                0x08 => out.extend_from_slice(b"\\b"),
                0x0c => out.extend_from_slice(b"\\f"),
                0x0a => out.extend_from_slice(b"\\n"),
                0x0d => out.extend_from_slice(b"\\r"),
                0x09 => out.extend_from_slice(b"\\t"),
                code if code < 0x20 => out.extend_from_slice(format!("\\u{code:04x}").as_bytes()),
                code => push(code, out),
            },
        })
    }

    /// What it says.
    pub(crate) fn decoded(self) -> Cow<'a, [u8]> {
        self.respelled(|escape, out| match escape {
            Escape::Short(b'b') => out.push(0x08),
            Escape::Short(b'f') => out.push(0x0c),
            Escape::Short(b'n') => out.push(b'\n'),
            Escape::Short(b'r') => out.push(b'\r'),
            Escape::Short(b't') => out.push(b'\t'),
            Escape::Short(other) => out.push(other),
            Escape::Code(code) => push(code, out),
        })
    }

    /// What it says, if that is text.
    pub(crate) fn to_text(self) -> Option<String> {
        String::from_utf8(self.decoded().into_owned()).ok()
    }

    fn respelled(self, say: impl Fn(Escape, &mut Vec<u8>)) -> Cow<'a, [u8]> {
        let Some(first) = memchr(b'\\', self.raw) else { return Cow::Borrowed(self.raw) };
        let (mut out, mut rest) = (Vec::with_capacity(self.raw.len()), self.raw);
        let mut next = Some(first);
        while let Some(at) = next {
            out.extend_from_slice(&rest[..at]);
            let (escape, len) = Escape::read(&rest[at + 1..]);
            say(escape, &mut out);
            rest = &rest[(at + 1 + len).min(rest.len())..];
            next = memchr(b'\\', rest);
        }
        out.extend_from_slice(rest);
        Cow::Owned(out)
    }
}

/// What stands behind a backslash.
enum Escape {
    /// One letter.
    Short(u8),
    /// A number, or a stroke, which needs no escape.
    Code(u32),
}

impl Escape {
    /// The escape and its length.
    fn read(rest: &[u8]) -> (Self, usize) {
        match rest.first() {
            Some(b'/') => (Self::Code(0x2f), 1),
            Some(b'u') => match hex(rest.get(1..5)) {
                Some(high @ 0xd800..=0xdbff) => match rest.get(5..7).filter(|e| *e == b"\\u").and_then(|_| hex(rest.get(7..11))) {
                    Some(low @ 0xdc00..=0xdfff) => (Self::Code(0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)), 11),
                    _ => (Self::Code(high), 5),
                },
                Some(code) => (Self::Code(code), 5),
                None => (Self::Short(b'u'), 1),
            },
            Some(letter) => (Self::Short(*letter), 1),
            None => (Self::Short(b'\\'), 0),
        }
    }
}

/// How many bytes come before the next quote, backslash or control character. Eight at a time: texts of code have an escape every few dozen
/// bytes, which is too often for searches that begin with a long stride.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut words = bytes.chunks_exact(8);
    let mut at = 0;
    for word in &mut words {
        let word = word.try_into().map_or(0, u64::from_le_bytes);
        // The high bit of a byte is set where it is less than a number, counted from the lowest; bytes beyond the first may be wrong.
        let less = |word: u64, than: u64| word.wrapping_sub(ONES * than) & !word;
        let ends = (less(word, 0x20) | less(word ^ (ONES * 0x22), 1) | less(word ^ (ONES * 0x5c), 1)) & (ONES << 7);
        if ends != 0 {
            return at + ends.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = words.remainder();
    at + rest.iter().position(|byte| matches!(byte, b'"' | b'\\') || *byte < b' ').unwrap_or(rest.len())
}

/// Whether a word is a number as JSON writes them.
fn is_number(word: &[u8]) -> bool {
    let digits = |at: usize| word[at..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut at = usize::from(word.first() == Some(&b'-'));
    let whole = digits(at);
    if whole == 0 || (whole > 1 && word[at] == b'0') {
        return false;
    }
    at += whole;
    if word.get(at) == Some(&b'.') {
        let fraction = digits(at + 1);
        if fraction == 0 {
            return false;
        }
        at += 1 + fraction;
    }
    if matches!(word.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(word.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at);
        if exponent == 0 {
            return false;
        }
        at += exponent;
    }
    at == word.len()
}

fn hex(digits: Option<&[u8]>) -> Option<u32> {
    digits?.iter().try_fold(0, |sum, b| Some(sum << 4 | char::from(*b).to_digit(16)?))
}

/// A code point in UTF-8; a lone half of a pair in the same way, so that it stays different from every other.
fn push(code: u32, out: &mut Vec<u8>) {
    match char::from_u32(code) {
        Some(letter) => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        None => {
            out.extend([0xe0 | (code >> 12), 0x80 | (code >> 6 & 0x3f), 0x80 | (code & 0x3f)].map(|b| u8::try_from(b & 0xff).unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text_of(json: &str) -> (Vec<u8>, Vec<u8>) {
        let mut reader = Reader::new(json.as_bytes());
        let text = reader.text().unwrap();
        assert!(reader.is_at_end(), "{json}");
        (text.canonical().into_owned(), text.decoded().into_owned())
    }

    #[test]
    fn a_text_is_the_same_whatever_escapes_it_is_written_with() {
        for (one, other) in [
            (r#""a/b""#, r#""a\/b""#),
            (r#""é\n""#, r#""\u00e9\u000A""#),
            (r#""🦙\"\\""#, r#""\ud83e\udd99\u0022\u005c""#),
            (r#""\b\f\n\r\t""#, r#""\u0008\u000c\u000a\u000d\u0009""#),
            (r#""\u001f""#, r#""\u001F""#),
        ] {
            assert_eq!(text_of(one), text_of(other), "{one} {other}");
        }
        assert_ne!(text_of(r#""\ud83e""#).0, text_of(r#""\udd99""#).0);
        assert_ne!(text_of(r#""\\n""#).0, text_of(r#""\n""#).0);
    }

    #[test]
    fn backslashes_before_a_quote_are_counted() {
        for (json, said) in [(r#""\\""#, "\\"), (r#""\\\"x""#, "\\\"x"), (r#""""#, ""), (r#""\"""#, "\"")] {
            assert_eq!(text_of(json).1, said.as_bytes(), "{json}");
        }
        assert!(Reader::new(br#""open\""#).text().is_none());
    }

    #[test]
    fn what_is_skipped_must_be_closed_as_it_was_opened() {
        for good in [r#"{"a":[1,{"b":"]}"}],"c":null}"#, "[]", "[[],{}]", "-1.5e3", r#""x""#] {
            let mut reader = Reader::new(good.as_bytes());
            assert!(reader.skip().is_some() && reader.is_at_end(), "{good}");
        }
        for bad in ["[}", "{]", "[[]", "{\"a\":\"", "nul", "", "[{]}"] {
            assert!(Reader::new(bad.as_bytes()).skip().is_none(), "{bad}");
        }
        assert!(Reader::new("[".repeat(100_000).as_bytes()).skip().is_none());
        let nested = |levels: usize| format!("{}0{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Reader::new(nested(MOST_NESTED).as_bytes()).skip().is_some());
        assert!(Reader::new(nested(MOST_NESTED + 1).as_bytes()).skip().is_none());
        assert!(Reader::new(nested(1_000_000).as_bytes()).skip().is_none());
    }

    /// Documents, mostly with a small fault.
    fn json_like() -> impl Strategy<Value = String> {
        let word = prop::sample::select(vec![
            "null",
            "true",
            "false",
            "0",
            "-0",
            "01",
            "1.5",
            "1.",
            ".5",
            "-",
            "1e5",
            "1E+5",
            "1e",
            "-1.25e-3",
            "nul",
            "+1",
            "NaN",
            "\"a\"",
            "\"\\n\"",
            "\"\\u12aB\"",
            "\"\\u12g4\"",
            "\"\\x\"",
            "\"\t\"",
            "\"\u{7f}é🦙\"",
            "\"open",
            "\"\\\"",
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "1 2",
            "{}",
            "[]",
            "\u{a0}",
        ]);
        let word = word.prop_map(str::to_owned);
        let nested = word.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(|all| format!("[{}]", all.join(","))),
                prop::collection::vec(inner.clone(), 0..4)
                    .prop_map(|all| format!("{{{}}}", all.iter().map(|v| format!("\"k\":{v}")).collect::<Vec<_>>().join(" , "))),
                prop::collection::vec(inner, 0..3).prop_map(|all| all.concat()),
            ]
        });
        nested.prop_map(|text| format!(" {text}\n"))
    }

    proptest! {
        #[test]
        fn the_end_of_plain_text_is_found_wherever_it_is(bytes in prop::collection::vec(prop_oneof![8 => any::<u8>(), 1 => Just(b'"'), 1 => Just(b'\\'), 30 => b' '..=0x7f], 0..80)) {
            let wanted = bytes.iter().position(|b| matches!(b, b'"' | b'\\') || *b < b' ').unwrap_or(bytes.len());
            prop_assert_eq!(plain(&bytes), wanted);
        }

        #[test]
        fn texts_are_read_as_other_readers_read_them(said in ".{0,40}", ascii in any::<bool>()) {
            let mut json = serde_json::to_string(&said).unwrap();
            if ascii {
                // As Python writes it.
                json = json.chars().flat_map(|c| if c.is_ascii() { vec![c.to_string()] } else { c.encode_utf16(&mut [0; 2]).iter().map(|u| format!("\\u{u:04x}")).collect() }).collect();
            }
            prop_assert_eq!(text_of(&json).1, said.as_bytes());
            prop_assert_eq!(text_of(&json).0, text_of(&serde_json::to_string(&said).unwrap()).0);
        }

        #[test]
        fn what_it_reads_is_json_and_all_json_is_read(text in json_like()) {
            let mut reader = Reader::new(text.as_bytes());
            let read = reader.skip().is_some() && reader.is_at_end();
            prop_assert_eq!(read, serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok(), "{}", text);
        }

        #[test]
        fn rubbish_is_no_panic(bytes in prop::collection::vec(prop_oneof![Just(b'"'), Just(b'\\'), Just(b'{'), Just(b'['), Just(b']'), Just(b'}'), Just(b':'), Just(b','), Just(b'u'), any::<u8>()], 0..60)) {
            let _ = Reader::new(&bytes).skip();
            if let Some(text) = Reader::new(&bytes).text() {
                let _ = (text.canonical(), text.decoded());
            }
        }
    }
}
