//! Messages one after the other: `messages` of chat and Messages, `input` of Responses.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{
    hash,
    scan::Scan,
    value::{Content, Members},
};

/// Links kept of a chain; older ones are folded into the first that is kept.
const LINKS: usize = 1024;

/// Reads messages into a scan.
pub(crate) struct Messages<'a>(pub(crate) &'a mut Scan);

impl Messages<'_> {
    fn link(&mut self, message: u64) {
        let scan = &mut *self.0;
        let before = scan.chain.last().copied().unwrap_or(0);
        if scan.chain.len() >= LINKS * 2 {
            scan.chain.drain(..LINKS);
        }
        scan.chain.push(hash::of(&(before, message)));
        scan.messages += 1;
    }

    fn take(&mut self, message: &Members) {
        let Some(hash) = message.hash() else { return };
        let role = message.role();
        // What stands in front of the first turn is the system prompt, whatever the dialect calls it.
        if self.0.messages == 0 && matches!(role, Some("system" | "developer")) {
            self.0.system = hash::of(&(self.0.system, hash));
            return;
        }
        self.0.opening &= matches!(role, Some("user" | "system" | "developer"));
        self.link(hash);
    }
}

impl<'de> DeserializeSeed<'de> for Messages<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Messages<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("messages")
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E: Error>(mut self, value: &str) -> Result<(), E> {
        let content = Content.visit_str(value)?;
        self.link(content);
        Ok(())
    }
    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(message) = items.next_element_seed(Message)? {
            if let Some(message) = message {
                self.take(&message);
            }
        }
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// One message; anything but an object is none.
struct Message;

impl<'de> DeserializeSeed<'de> for Message {
    type Value = Option<Members>;
    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Option<Members>, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Message {
    type Value = Option<Members>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<Members>, A::Error> {
        Members::read(map).map(Some)
    }
    fn visit_str<E: Error>(self, _: &str) -> Result<Option<Members>, E> {
        Ok(None)
    }
}
