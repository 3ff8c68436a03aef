//! Declares the objects of a request, so that no field can vanish unseen.
//!
//! `object!` makes a struct and its reader. A field is taken, or stands on the one list of ignored fields (`ignored`), or is noted in
//! `unread` of the object that held it. Fields that are taken and then not used are found by the compiler, because they are private
//! to their dialect. null is the same as absent; a field that is there twice is an error, because readers disagree which one counts. So is
//! an object without the field it needs: it is refused before more of its kind are read.

use std::{borrow::Cow, collections::HashSet};

use super::{ignored, text::Quoted};

/// See the module.
macro_rules! object {
    ($(#[$doc:meta])* $name:ident<$life:lifetime> at $place:literal $(needs $needed:ident: $missing:literal)? { $($(#[$field_doc:meta])* $field:ident: $type:ty = $key:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(super) struct $name<$life> {
            $($(#[$field_doc])* pub(super) $field: Option<$type>,)*
            /// Names of fields that nobody knows.
            pub(super) unread: Vec<std::borrow::Cow<$life, str>>,
        }

        impl<'de: $life, $life> $crate::dialects::lists::Bounded<'de> for $name<$life> {
            fn read<D: serde::Deserializer<'de>>(source: D, room: &$crate::dialects::lists::Room) -> Result<Self, D::Error> {
                struct Reader<'r, $life>(&'r $crate::dialects::lists::Room, std::marker::PhantomData<&$life ()>);

                impl<'de: $life, $life> serde::de::Visitor<'de> for Reader<'_, $life> {
                    type Value = $name<$life>;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("an object (", $place, ")"))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                        let mut object = $name::default();
                        while let Some($crate::scan::Name(name)) = map.next_key::<$crate::scan::Name<'de>>()? {
                            match &*name {
                                $($key => {
                                    if object.$field.is_some() {
                                        return Err(serde::de::Error::custom(concat!("'", $key, "' is there twice")));
                                    }
                                    object.$field = map.next_value_seed($crate::dialects::lists::Maybe::<$type>::new(self.0))?;
                                })*
                                _ => {
                                    map.next_value::<serde::de::IgnoredAny>()?;
                                    if !$crate::dialects::ignored::is_ignored($place, &name) && self.0.notes_unread() {
                                        object.unread.push(name);
                                    }
                                }
                            }
                        }
                        $(if object.$needed.is_none() {
                            return Err(serde::de::Error::custom($missing));
                        })?
                        Ok(object)
                    }
                }

                source.deserialize_map(Reader(room, std::marker::PhantomData))
            }
        }
    };
}

pub(super) use object;

/// What nobody read of a request: `place.field`, in the order met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    names: Vec<String>,
    /// The same, to look them up.
    seen: HashSet<String>,
}

impl Leftovers {
    /// The places and names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Whether everything was read or is ignored on purpose.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    pub(super) fn note(&mut self, place: &str, unread: &[Cow<'_, str>]) {
        for name in unread {
            self.add(format!("{place}.{name}"));
        }
    }

    /// Notes a tool that nobody here runs, unless its kind is known.
    pub(super) fn note_kind(&mut self, place: &str, kind: Option<Quoted<'_>>) {
        if let Some(kind) = kind.map(Quoted::decoded).filter(|kind| !ignored::is_hosted_tool(kind)) {
            self.add(format!("{place} of type {kind:?}"));
        }
    }

    fn add(&mut self, entry: String) {
        // Said once: a conversation holds the same field in every message.
        if self.seen.insert(entry.clone()) {
            self.names.push(entry);
        }
    }
}
