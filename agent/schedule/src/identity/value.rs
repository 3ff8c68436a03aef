//! A JSON value as one hash, read as it streams by, without a tree.
//!
//! Members count in any order, spacing and escapes do not count, and what clients rewrite between two turns is left out: see `SKIPPED`,
//! `content` and `arguments`.

use super::{
    hash,
    reader::{Kind, Reader, Text},
};

/// Members that say nothing about what was said.
const SKIPPED: [&[u8]; 2] = [b"cache_control", b"output_config"];
/// Blocks that are plain text, by the names of the three dialects.
const TEXT: [&[u8]; 3] = [b"text", b"input_text", b"output_text"];
/// Start of a block that a client writes anew for each session or request.
const BILLING: &[u8] = b"x-anthropic-billing-header:";

/// The hash of plain text, alone or as a block; `None` for a text that does not count.
fn plain_text(text: Text<'_>) -> Option<u64> {
    let said = text.canonical();
    (!said.is_empty() && !said.starts_with(BILLING)).then(|| hash::of(&("text", &*said)))
}

fn string(text: Text<'_>) -> u64 {
    hash::of(&("string", &*text.canonical()))
}

/// A number, a truth or null. Nothing, null and absent are the same.
fn scalar(reader: &mut Reader<'_>) -> Option<u64> {
    let word = reader.scalar()?;
    if word == b"null" {
        return Some(0);
    }
    let whole = word.iter().all(|b| !matches!(b, b'.' | b'e' | b'E'));
    let number = if whole { None } else { std::str::from_utf8(word).ok().and_then(|w| w.parse::<f64>().ok()) };
    Some(match number {
        Some(number) => hash::of(&("number", number.to_bits())),
        None => hash::of(&("word", word)),
    })
}

/// Any value.
pub(crate) fn any(reader: &mut Reader<'_>) -> Option<u64> {
    match reader.kind()? {
        Kind::Text => reader.text().map(string),
        Kind::Object => Some(Members::read(reader)?.hash().unwrap_or(0)),
        Kind::Array => {
            let mut all = hash::of(&"list");
            reader.array(|reader| {
                all = hash::of(&(all, any(reader)?));
                Some(())
            })?;
            Some(all)
        }
        Kind::Number | Kind::Bool | Kind::Null => scalar(reader),
    }
}

/// The members of an object, added up.
#[derive(Default)]
pub(crate) struct Members<'a> {
    sum: u64,
    kind: Option<Text<'a>>,
    /// Not in the sum: it is long, and a block of text is hashed by it alone.
    text: Option<Text<'a>>,
    role: Option<Text<'a>>,
}

impl<'a> Members<'a> {
    /// Reads an object.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let mut all = Self::default();
        reader.object(|reader, name| {
            let name = name.canonical();
            if SKIPPED.contains(&&*name) {
                return reader.skip();
            }
            let is_text = reader.kind()? == Kind::Text;
            let value = match &*name {
                b"content" => content(reader)?,
                b"arguments" => arguments(reader)?,
                b"text" if is_text => match all.text.replace(reader.text()?) {
                    Some(before) => string(before),
                    None => return Some(()),
                },
                b"type" if is_text => string(*all.kind.insert(reader.text()?)),
                b"role" if is_text => string(*all.role.insert(reader.text()?)),
                _ => any(reader)?,
            };
            all.add(&name, value);
            Some(())
        })?;
        Some(all)
    }

    fn add(&mut self, name: &[u8], value: u64) {
        if value != 0 {
            self.sum = self.sum.wrapping_add(hash::of(&(name, value)));
        }
    }

    /// The object as a whole; `None` when it does not count. A text block is its text, whatever else stands in it.
    pub(crate) fn hash(&self) -> Option<u64> {
        match (self.kind, self.text) {
            (Some(kind), Some(said)) if TEXT.contains(&&*kind.canonical()) => plain_text(said),
            (_, None) => Some(hash::of(&("object", self.sum))),
            (_, Some(said)) => Some(hash::of(&("object", self.sum, string(said)))),
        }
    }

    /// Whether `role` is one of these.
    pub(crate) fn has_role(&self, roles: &[&str]) -> bool {
        self.role.is_some_and(|role| roles.iter().any(|known| known.as_bytes() == &*role.canonical()))
    }
}

/// A block after others.
fn after(blocks: u64, block: Option<u64>) -> u64 {
    block.map_or(blocks, |b| hash::of(&(blocks, b)))
}

/// One text as a content: it is one block.
pub(crate) fn text_alone(text: Text<'_>) -> u64 {
    after(0, plain_text(text))
}

/// `content`: one text, or blocks.
pub(crate) fn content(reader: &mut Reader<'_>) -> Option<u64> {
    match reader.kind()? {
        Kind::Text => reader.text().map(text_alone),
        Kind::Object => Some(after(0, Members::read(reader)?.hash())),
        Kind::Array => {
            let mut all = 0;
            reader.array(|reader| {
                let block = match reader.kind()? {
                    Kind::Text => plain_text(reader.text()?),
                    Kind::Object => Members::read(reader)?.hash(),
                    _ => return None,
                };
                all = after(all, block);
                Some(())
            })?;
            Some(all)
        }
        Kind::Number | Kind::Bool | Kind::Null => scalar(reader),
    }
}

/// `arguments` of a call: JSON inside a string, which clients write anew. Strings further in are taken as they are written: each level
/// would be one more call and one more copy of all that it holds.
fn arguments(reader: &mut Reader<'_>) -> Option<u64> {
    if reader.kind()? != Kind::Text {
        return any(reader);
    }
    let said = reader.text()?;
    if reader.is_quoted() {
        return Some(string(said));
    }
    let decoded = said.decoded();
    let mut inner = reader.inside(&decoded);
    let read = any(&mut inner).filter(|_| inner.is_at_end());
    Some(read.unwrap_or_else(|| string(said)))
}
