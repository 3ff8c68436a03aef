//! Writes JSON straight into bytes, without a tree in between.
//!
//! In: names and values, in the order they are to appear. Out: one document. Text that came out of a request is written as it came,
//! still escaped, so that a long conversation is neither decoded nor encoded. Member names are ours and need no escaping.

use serde_json::value::RawValue;

use super::text::Text;

/// An object being written.
pub(super) struct Object<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

/// A list being written.
pub(super) struct List<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

/// Writes one object.
pub(super) fn object(out: &mut Vec<u8>, fill: impl FnOnce(&mut Object<'_>)) {
    out.push(b'{');
    fill(&mut Object { out, first: true });
    out.push(b'}');
}

/// One object as bytes of its own.
pub(super) fn document(fill: impl FnOnce(&mut Object<'_>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    object(&mut out, fill);
    out
}

/// Writes a string with its quotes.
pub(super) fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    escape(out, text);
    out.push(b'"');
}

/// Writes a string's inside, escaped.
pub(super) fn escape(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_run(rest));
        out.extend_from_slice(plain);
        let [byte, after @ ..] = special else { return };
        rest = after;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            other => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', HEX[usize::from(other >> 4)], HEX[usize::from(other & 15)]]),
        }
    }
}

/// How many bytes at the start are neither a quote, a backslash nor a control character. Looks at eight at a time.
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let is = |word: u64, byte: u8| {
        let other = word ^ (ONES * u64::from(byte));
        other.wrapping_sub(ONES) & !other
    };
    let (words, _) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // A borrow can only mark bytes behind one that is marked rightly, and the first mark is what counts.
        let found = (word.wrapping_sub(ONES * 0x20) & !word | is(word, b'"') | is(word, b'\\')) & HIGH;
        if found != 0 {
            return at * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let from = words.len() * 8;
    bytes[from..].iter().position(|b| matches!(b, 0..0x20 | b'"' | b'\\')).map_or(bytes.len(), |at| from + at)
}

impl Object<'_> {
    fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// A string.
    pub(super) fn string(&mut self, name: &str, value: &str) {
        string(self.name(name), value);
    }

    /// A string that may be absent, as null then.
    pub(super) fn string_or_null(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.string(name, value),
            None => self.null(name),
        }
    }

    /// Text of a request.
    pub(super) fn text(&mut self, name: &str, value: &Text<'_>) {
        value.write(self.name(name));
    }

    /// A value as it came.
    pub(super) fn raw(&mut self, name: &str, value: &RawValue) {
        self.name(name).extend_from_slice(value.get().as_bytes());
    }

    /// JSON that was made here.
    pub(super) fn json(&mut self, name: &str, value: &[u8]) {
        self.name(name).extend_from_slice(value);
    }

    /// JSON that came under a name which is not ours.
    pub(super) fn named(&mut self, name: &str, value: &[u8]) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        string(self.out, name);
        self.out.push(b':');
        self.out.extend_from_slice(value);
    }

    /// A whole number.
    pub(super) fn number(&mut self, name: &str, value: impl std::fmt::Display) {
        let text = value.to_string();
        self.name(name).extend_from_slice(text.as_bytes());
    }

    /// True or false.
    pub(super) fn flag(&mut self, name: &str, value: bool) {
        self.name(name).extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// Null.
    pub(super) fn null(&mut self, name: &str) {
        self.name(name).extend_from_slice(b"null");
    }

    /// An object inside.
    pub(super) fn object(&mut self, name: &str, fill: impl FnOnce(&mut Object<'_>)) {
        object(self.name(name), fill);
    }

    /// A list inside.
    pub(super) fn list(&mut self, name: &str, fill: impl FnOnce(&mut List<'_>)) {
        let out = self.name(name);
        out.push(b'[');
        fill(&mut List { out, first: true });
        self.out.push(b']');
    }
}

impl List<'_> {
    fn next(&mut self) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        self.out
    }

    /// An object.
    pub(super) fn object(&mut self, fill: impl FnOnce(&mut Object<'_>)) {
        object(self.next(), fill);
    }

    /// Text of a request.
    pub(super) fn text(&mut self, value: &Text<'_>) {
        value.write(self.next());
    }

    /// JSON that was made here.
    pub(super) fn json(&mut self, value: &[u8]) {
        self.next().extend_from_slice(value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_comes_back_from_what_was_written(text in any::<String>()) {
            let mut out = Vec::new();
            string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn the_run_of_plain_bytes_ends_where_one_by_one_says(bytes in prop::collection::vec(prop_oneof![Just(b'"'), Just(0x1f), Just(0x20), Just(0x80), Just(b'a'), any::<u8>()], 0..40)) {
            let slow = bytes.iter().position(|b| *b < 0x20 || *b == b'"' || *b == b'\\').unwrap_or(bytes.len());
            prop_assert_eq!(plain_run(&bytes), slow);
        }
    }

    #[test]
    fn members_and_items_are_parted_by_commas_and_nothing_else() {
        let bytes = document(|o| {
            o.string("a", "x\u{1}\"");
            o.null("b");
            o.list("c", |l| {
                l.object(|_| {});
                l.json(b"1");
            });
            o.object("d", |o| o.flag("e", true));
            o.number("n", 3);
        });
        assert_eq!(String::from_utf8(bytes).unwrap(), r#"{"a":"x\u0001\"","b":null,"c":[{},1],"d":{"e":true},"n":3}"#);
    }
}
