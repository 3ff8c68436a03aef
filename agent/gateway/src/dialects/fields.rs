//! Declares the objects of a request, so that no field can vanish unseen.
//!
//! `object!` makes a struct and its reader. A field is taken, or stands on the one list of ignored fields (`ignored`), or is noted in
//! `unread` of the object that held it. Fields that are taken and then not used are found by the compiler, because they are private
//! to their dialect. null is the same as absent; a field that is there twice is an error, because readers disagree which one counts.

use std::borrow::Cow;

use super::{ignored, text::Quoted};

/// See the module.
macro_rules! object {
    ($(#[$doc:meta])* $name:ident<$life:lifetime> at $place:literal { $($(#[$field_doc:meta])* $field:ident: $type:ty = $key:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(super) struct $name<$life> {
            $($(#[$field_doc])* pub(super) $field: Option<$type>,)*
            /// Names of fields that nobody knows.
            pub(super) unread: Vec<std::borrow::Cow<$life, str>>,
        }

        impl<'de: $life, $life> serde::Deserialize<'de> for $name<$life> {
            fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                struct Reader<$life>(std::marker::PhantomData<&$life ()>);

                impl<'de: $life, $life> serde::de::Visitor<'de> for Reader<$life> {
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
                                    object.$field = map.next_value()?;
                                })*
                                _ => {
                                    map.next_value::<serde::de::IgnoredAny>()?;
                                    if !$crate::dialects::ignored::is_ignored($place, &name) {
                                        object.unread.push(name);
                                    }
                                }
                            }
                        }
                        Ok(object)
                    }
                }

                source.deserialize_map(Reader(std::marker::PhantomData))
            }
        }
    };
}

pub(super) use object;

/// What nobody read of a request: `place.field`, in the order met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers(Vec<String>);

impl Leftovers {
    /// The places and names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// Whether everything was read or is ignored on purpose.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        if !self.0.contains(&entry) {
            self.0.push(entry);
        }
    }
}
