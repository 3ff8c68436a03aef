//! One chunk of a streamed chat answer, with all its members, for an answer that is put together.

use std::borrow::Cow;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::said;
use crate::scan::Name;

/// A chunk's members.
#[derive(Default)]
pub(super) struct Chunk<'a> {
    pub choices: Vec<ChoicePiece<'a>>,
    pub object: Option<said::Text<'a>>,
    pub error: Option<&'a RawValue>,
    pub others: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// A piece of one choice.
#[derive(Deserialize)]
pub(super) struct ChoicePiece<'a> {
    #[serde(default)]
    pub index: u64,
    #[serde(borrow, default)]
    pub delta: Option<said::Said<'a>>,
    #[serde(borrow, default)]
    pub text: Option<said::Text<'a>>,
    #[serde(borrow, default)]
    pub logprobs: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub finish_reason: Option<&'a RawValue>,
}

/// How likely the model held each token.
#[derive(Deserialize)]
pub(super) struct Logprobs<'a> {
    #[serde(borrow, default)]
    pub content: Option<Vec<&'a RawValue>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Chunk<'a> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Chunk<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a chunk of an answer")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Chunk<'de>, A::Error> {
                let mut chunk = Chunk::default();
                while let Some(Name(name)) = map.next_key::<Name<'de>>()? {
                    match &*name {
                        "choices" => chunk.choices = map.next_value::<Option<_>>()?.unwrap_or_default(),
                        "object" => chunk.object = map.next_value()?,
                        "error" => chunk.error = map.next_value()?,
                        "prompt_progress" => drop(map.next_value::<serde::de::IgnoredAny>()?),
                        _ => chunk.others.push((name, map.next_value()?)),
                    }
                }
                Ok(chunk)
            }
        }

        source.deserialize_map(Reader)
    }
}
