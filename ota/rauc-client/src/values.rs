//! Reads RAUC's loose dictionaries (`a{sv}` in `a{sv}`): a variant inside a variant is looked through, and whatever is missing or of another
//! type is `None`.

use std::collections::HashMap;

use zbus::{OwnedVariant, Variant};

/// A dictionary as it came.
pub(crate) type Map = HashMap<String, OwnedVariant>;

fn inner<'a, 'v>(value: &'a Variant<'v>) -> &'a Variant<'v> {
    match value {
        Variant::Variant(within) => inner(within),
        other => other,
    }
}

/// A text.
pub(crate) fn text(value: &Variant<'_>) -> Option<String> {
    match inner(value) {
        Variant::Str(text) => Some(text.to_string()),
        _ => None,
    }
}

/// A whole number that is not negative.
pub(crate) fn number(value: &Variant<'_>) -> Option<u64> {
    match inner(value) {
        Variant::U64(number) => Some(*number),
        Variant::U32(number) => Some(u64::from(*number)),
        _ => None,
    }
}

/// The items of a list.
pub(crate) fn items<'a, 'v>(value: &'a Variant<'v>) -> &'a [Variant<'v>] {
    match inner(value) {
        Variant::Array(array) => array.inner(),
        _ => &[],
    }
}

/// A member of a dictionary.
pub(crate) fn member<'a, 'v>(value: &'a Variant<'v>, name: &str) -> Option<&'a Variant<'v>> {
    match inner(value) {
        Variant::Dict(dict) => dict.iter().find(|(key, _)| text(key).as_deref() == Some(name)).map(|(_, value)| inner(value)),
        _ => None,
    }
}

/// A text of a dictionary at the top.
pub(crate) fn text_of(map: &Map, name: &str) -> Option<String> {
    map.get(name).and_then(|v| text(v))
}
