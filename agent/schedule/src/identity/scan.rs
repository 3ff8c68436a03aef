//! One pass over a body: what it says about its conversation.

use std::fmt;

use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{hash, message::Messages, value::Content};

/// What a body says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The system prompt; 0: none.
    pub(crate) system: u64,
    /// See `Asked`.
    pub(crate) chain: Vec<u64>,
    pub(crate) messages: usize,
    pub(crate) opening: bool,
    pub(crate) tools: bool,
    /// `prompt_cache_key`.
    pub(crate) cache_key: Option<String>,
    /// `metadata.user_id`.
    pub(crate) user_id: Option<String>,
}

impl Default for Scan {
    fn default() -> Self {
        Self { system: 0, chain: Vec::new(), messages: 0, opening: true, tools: false, cache_key: None, user_id: None }
    }
}

/// Reads a body of any of the three dialects; `None` when it is no JSON object, or nested beyond reason.
#[must_use]
pub fn scan(body: &[u8]) -> Option<Scan> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    (&mut reader).deserialize_map(Body).ok()
}

struct Body;

impl<'de> Visitor<'de> for Body {
    type Value = Scan;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scan, A::Error> {
        let mut scan = Scan::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "messages" | "input" => map.next_value_seed(Messages(&mut scan))?,
                "system" | "instructions" => {
                    let system = map.next_value_seed(Content)?;
                    scan.system = hash::of(&(scan.system, system));
                }
                "tools" => scan.tools |= map.next_value::<Several>()?.0,
                "prompt_cache_key" => scan.cache_key = map.next_value::<Text>()?.0,
                "metadata" => scan.user_id = map.next_value::<Metadata>()?.0,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(scan)
    }
}

/// Whether a list holds anything; a value of another kind holds nothing.
struct Several(bool);
/// A string; a value of another kind is none.
struct Text(Option<String>);
/// `user_id` of an object.
struct Metadata(Option<String>);

macro_rules! lenient {
    ($name:ident, $none:expr, { $($more:tt)* }) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
                struct Lenient;
                impl<'de> Visitor<'de> for Lenient {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("JSON")
                    }
                    fn visit_unit<E: Error>(self) -> Result<$name, E> { Ok($none) }
                    fn visit_bool<E: Error>(self, _: bool) -> Result<$name, E> { Ok($none) }
                    fn visit_i64<E: Error>(self, _: i64) -> Result<$name, E> { Ok($none) }
                    fn visit_u64<E: Error>(self, _: u64) -> Result<$name, E> { Ok($none) }
                    fn visit_f64<E: Error>(self, _: f64) -> Result<$name, E> { Ok($none) }
                    $($more)*
                }
                reader.deserialize_any(Lenient)
            }
        }
    };
}

macro_rules! skip_map {
    ($name:ident, $none:expr) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok($none)
        }
    };
}

macro_rules! skip_seq {
    ($name:ident, $none:expr) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<$name, A::Error> {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            Ok($none)
        }
    };
}

lenient!(Several, Several(false), {
    fn visit_str<E: Error>(self, _: &str) -> Result<Several, E> {
        Ok(Several(false))
    }
    skip_map!(Several, Several(false));
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Several, A::Error> {
        let mut any = false;
        while items.next_element::<IgnoredAny>()?.is_some() {
            any = true;
        }
        Ok(Several(any))
    }
});

lenient!(Text, Text(None), {
    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(Some(text.to_owned())))
    }
    skip_map!(Text, Text(None));
    skip_seq!(Text, Text(None));
});

lenient!(Metadata, Metadata(None), {
    fn visit_str<E: Error>(self, _: &str) -> Result<Metadata, E> {
        Ok(Metadata(None))
    }
    skip_seq!(Metadata, Metadata(None));
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == "user_id" {
                found = map.next_value::<Text>()?.0;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Metadata(found))
    }
});
