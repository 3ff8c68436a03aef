//! Content of a message or a result, which clients send as a string or as a list of blocks.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::value::RawValue;

use super::text::Quoted;

/// Content: a string, or blocks, or the one block that some results are.
#[derive(Debug)]
pub(super) enum Content<'a, B> {
    Text(Quoted<'a>),
    Blocks(Vec<B>),
}

impl<'de: 'a, 'a, B: Deserialize<'de>> Deserialize<'de> for Content<'a, B> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let value: &'de RawValue = Deserialize::deserialize(source)?;
        if let Some(text) = Quoted::of(value) {
            return Ok(Self::Text(text));
        }
        let blocks = match value.get().as_bytes().first() {
            Some(b'{') => serde_json::from_str(value.get()).map(|block| vec![block]),
            _ => serde_json::from_str(value.get()),
        };
        blocks.map(Self::Blocks).map_err(|cause| D::Error::custom(format_args!("in content: {cause}")))
    }
}
