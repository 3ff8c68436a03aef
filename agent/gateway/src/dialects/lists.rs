//! Reads the values of a request, with a bound on how many things its lists hold all together.
//!
//! A thing in memory is a hundred times as large as the `{}` it may be in a body: without a bound, one body within its own limit takes
//! gigabytes. Every list of a request is read here, lists in lists too, and they share one bound, so none of them is without it.

use std::{
    cell::Cell,
    fmt::{self, Formatter},
    marker::PhantomData,
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use warden_domain::{Problem, ProblemKind};

use super::{text::Quoted, unreadable};

/// Most things in the lists of one request. The longest conversations of coding agents have a tenth of it.
const MOST: usize = 100_000;
/// Most fields nobody knows that are noted of one request: they are only reported.
const MOST_UNREAD: usize = 1000;

/// What one request has taken of its bounds so far.
#[derive(Debug, Default)]
pub(super) struct Room {
    things: Cell<usize>,
    unread: Cell<usize>,
}

/// A value of a request, read within the request's bounds.
pub(super) trait Bounded<'de>: Sized {
    fn read<D: Deserializer<'de>>(source: D, room: &Room) -> Result<Self, D::Error>;
}

/// Reads a whole body; `api`: whose words describe it.
pub(super) fn body<'de, T: Bounded<'de>>(body: &'de [u8], api: &str) -> Result<T, Problem> {
    let text = std::str::from_utf8(body).map_err(|_| unreadable("it is not UTF-8", api))?;
    let room = Room::default();
    room.read(text).map_err(|cause| room.refusal().unwrap_or_else(|| unreadable(&cause.to_string(), api)))
}

impl Room {
    /// Reads a text that is one value.
    pub(super) fn read<'de, T: Bounded<'de>>(&self, text: &'de str) -> Result<T, serde_json::Error> {
        let mut source = serde_json::Deserializer::from_str(text);
        let value = T::read(&mut source, self)?;
        source.end().map(|()| value)
    }

    /// Why nothing more is read, once the lists held too much.
    pub(super) fn refusal(&self) -> Option<Problem> {
        (self.things.get() > MOST).then(|| {
            Problem::new(ProblemKind::BadRequest, format!("The request holds more than {MOST} messages, blocks of content and tools all together."))
                .hint("Leave out old turns, or send short blocks of text as one.")
        })
    }

    /// Whether one more unknown field is noted.
    pub(super) fn notes_unread(&self) -> bool {
        self.unread.replace(self.unread.get() + 1) < MOST_UNREAD
    }

    fn take<E: Error>(&self) -> Result<(), E> {
        self.things.set(self.things.get() + 1);
        if self.things.get() > MOST { Err(E::custom("there are too many things in it")) } else { Ok(()) }
    }
}

/// A value that may be null, which is the same as absent.
pub(super) struct Maybe<'r, T>(&'r Room, PhantomData<T>);

impl<'r, T> Maybe<'r, T> {
    pub(super) const fn new(room: &'r Room) -> Self {
        Self(room, PhantomData)
    }
}

impl<'de, T: Bounded<'de>> DeserializeSeed<'de> for Maybe<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Option<T>, D::Error> {
        source.deserialize_option(self)
    }
}

impl<'de, T: Bounded<'de>> Visitor<'de> for Maybe<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_none<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, source: D) -> Result<Option<T>, D::Error> {
        T::read(source, self.0).map(Some)
    }
}

/// A list.
struct List<'r, T>(&'r Room, PhantomData<T>);

impl<'de, T: Bounded<'de>> Visitor<'de> for List<'_, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(thing) = source.next_element_seed(Thing(self.0, PhantomData))? {
            all.push(thing);
        }
        Ok(all)
    }
}

/// One thing in a list.
struct Thing<'r, T>(&'r Room, PhantomData<T>);

impl<'de, T: Bounded<'de>> DeserializeSeed<'de> for Thing<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<T, D::Error> {
        self.0.take()?;
        T::read(source, self.0)
    }
}

impl<'de, T: Bounded<'de>> Bounded<'de> for Vec<T> {
    fn read<D: Deserializer<'de>>(source: D, room: &Room) -> Result<Self, D::Error> {
        source.deserialize_seq(List(room, PhantomData))
    }
}

impl<'de: 'a, 'a> Bounded<'de> for Quoted<'a> {
    fn read<D: Deserializer<'de>>(source: D, _: &Room) -> Result<Self, D::Error> {
        Deserialize::deserialize(source)
    }
}

impl<'de: 'a, 'a> Bounded<'de> for &'a RawValue {
    fn read<D: Deserializer<'de>>(source: D, _: &Room) -> Result<Self, D::Error> {
        Deserialize::deserialize(source)
    }
}

impl<'de> Bounded<'de> for bool {
    fn read<D: Deserializer<'de>>(source: D, _: &Room) -> Result<Self, D::Error> {
        Deserialize::deserialize(source)
    }
}
