//! A JSON value as one hash, read as it streams by, without a tree.
//!
//! Members count in any order, spacing and escapes do not count, and what clients rewrite between two turns is left out: see `SKIPPED`,
//! `content` and `arguments`.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::hash;

/// Members that say nothing about what was said.
const SKIPPED: [&str; 2] = ["cache_control", "output_config"];
/// Blocks that are plain text, by the names of the three dialects.
const TEXT: [&str; 3] = ["text", "input_text", "output_text"];
/// Start of a block that a client writes anew for each session or request.
const BILLING: &str = "x-anthropic-billing-header:";

/// The hash of plain text, alone or as a block; `None` for a text that does not count.
fn text(text: &str) -> Option<u64> {
    (!text.is_empty() && !text.starts_with(BILLING)).then(|| hash::of(&("text", text)))
}

/// Any value.
pub(crate) struct AnyValue;

macro_rules! plain {
    ($($name:ident: $type:ty),*) => {
        $(fn $name<E: Error>(self, value: $type) -> Result<u64, E> {
            Ok(hash::of(&(stringify!($name), value.to_string())))
        })*
    };
}

impl<'de> DeserializeSeed<'de> for AnyValue {
    type Value = u64;
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<u64, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for AnyValue {
    type Value = u64;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    plain!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
    fn visit_str<E: Error>(self, value: &str) -> Result<u64, E> {
        Ok(hash::of(&("string", value)))
    }
    fn visit_unit<E: Error>(self) -> Result<u64, E> {
        Ok(0)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<u64, A::Error> {
        let mut all = hash::of(&"list");
        while let Some(item) = items.next_element_seed(Self)? {
            all = hash::of(&(all, item));
        }
        Ok(all)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<u64, A::Error> {
        Ok(Members::read(map)?.hash().unwrap_or(0))
    }
}

/// The members of an object, added up.
#[derive(Default)]
pub(crate) struct Members {
    sum: u64,
    kind: Option<String>,
    text: Option<String>,
    role: Option<String>,
}

impl Members {
    /// Reads an object.
    pub(crate) fn read<'de, A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut all = Self::default();
        while let Some(name) = map.next_key::<String>()? {
            if SKIPPED.contains(&name.as_str()) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = match name.as_str() {
                "content" => map.next_value_seed(Content)?,
                "arguments" => map.next_value_seed(Arguments)?,
                "type" => map.next_value_seed(Kept(&mut all.kind))?,
                "text" => map.next_value_seed(Kept(&mut all.text))?,
                "role" => map.next_value_seed(Kept(&mut all.role))?,
                _ => map.next_value_seed(AnyValue)?,
            };
            // Nothing, null and absent are the same.
            if value != 0 {
                all.sum = all.sum.wrapping_add(hash::of(&(name, value)));
            }
        }
        Ok(all)
    }

    /// The object as a whole; `None` when it does not count. A text block is its text, whatever else stands in it.
    pub(crate) fn hash(&self) -> Option<u64> {
        match (&self.kind, &self.text) {
            (Some(kind), Some(said)) if TEXT.contains(&kind.as_str()) => text(said),
            _ => Some(hash::of(&("object", self.sum))),
        }
    }

    pub(crate) fn role(&self) -> Option<&str> {
        self.role.as_deref()
    }
}

/// `content`: one text, or blocks. One text is one block.
pub(crate) struct Content;

impl<'de> DeserializeSeed<'de> for Content {
    type Value = u64;
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<u64, D::Error> {
        reader.deserialize_any(self)
    }
}

/// A block after others.
fn after(blocks: u64, block: Option<u64>) -> u64 {
    block.map_or(blocks, |b| hash::of(&(blocks, b)))
}

impl<'de> Visitor<'de> for Content {
    type Value = u64;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or blocks")
    }
    plain!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
    fn visit_str<E: Error>(self, value: &str) -> Result<u64, E> {
        Ok(after(0, text(value)))
    }
    fn visit_unit<E: Error>(self) -> Result<u64, E> {
        Ok(0)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<u64, A::Error> {
        let mut all = 0;
        while let Some(block) = items.next_element_seed(Block)? {
            all = after(all, block);
        }
        Ok(all)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<u64, A::Error> {
        Ok(after(0, Members::read(map)?.hash()))
    }
}

/// One block of a content.
struct Block;

impl<'de> DeserializeSeed<'de> for Block {
    type Value = Option<u64>;
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Option<u64>, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Block {
    type Value = Option<u64>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a block")
    }
    fn visit_str<E: Error>(self, value: &str) -> Result<Option<u64>, E> {
        Ok(text(value))
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<u64>, A::Error> {
        Ok(Members::read(map)?.hash())
    }
}

/// `arguments` of a call: JSON inside a string, which clients write anew.
struct Arguments;

impl<'de> DeserializeSeed<'de> for Arguments {
    type Value = u64;
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<u64, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Arguments {
    type Value = u64;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("arguments")
    }
    plain!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
    fn visit_str<E: Error>(self, value: &str) -> Result<u64, E> {
        let mut inner = serde_json::Deserializer::from_str(value);
        let read = AnyValue.deserialize(&mut inner).and_then(|hash| inner.end().map(|()| hash));
        Ok(read.unwrap_or_else(|_| hash::of(&("string", value))))
    }
    fn visit_unit<E: Error>(self) -> Result<u64, E> {
        Ok(0)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<u64, A::Error> {
        AnyValue.visit_seq(items)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<u64, A::Error> {
        AnyValue.visit_map(map)
    }
}

/// A value that is also kept when it is a string.
struct Kept<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for Kept<'_> {
    type Value = u64;
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<u64, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Kept<'_> {
    type Value = u64;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    plain!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
    fn visit_str<E: Error>(self, value: &str) -> Result<u64, E> {
        *self.0 = Some(value.to_owned());
        Ok(hash::of(&("string", value)))
    }
    fn visit_unit<E: Error>(self) -> Result<u64, E> {
        Ok(0)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<u64, A::Error> {
        AnyValue.visit_seq(items)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<u64, A::Error> {
        AnyValue.visit_map(map)
    }
}
