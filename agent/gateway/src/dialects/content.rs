//! Content of a message or a result, which clients send as a string or as a list of blocks.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::value::RawValue;

use super::{
    lists::{Bounded, Room},
    text::Quoted,
};

/// Content: a string, or blocks, or the one block that some results are.
#[derive(Debug)]
pub(super) enum Content<'a, B> {
    Text(Quoted<'a>),
    Blocks(Vec<B>),
}

impl<'de: 'a, 'a, B: Bounded<'de>> Bounded<'de> for Content<'a, B> {
    fn read<D: Deserializer<'de>>(source: D, room: &Room) -> Result<Self, D::Error> {
        let value: &'de RawValue = Deserialize::deserialize(source)?;
        if let Some(text) = Quoted::of(value) {
            return Ok(Self::Text(text));
        }
        let blocks = match value.get().as_bytes().first() {
            Some(b'{') => room.read(value.get()).map(|block| vec![block]),
            _ => room.read(value.get()),
        };
        blocks.map(Self::Blocks).map_err(|cause| D::Error::custom(format_args!("in content: {cause}")))
    }
}
