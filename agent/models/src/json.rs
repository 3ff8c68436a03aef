//! JSON of unknown origin, read for a few keys: everything else is passed over without being kept.
//!
//! In: text and the names of the keys that are wanted. Out: an object with those keys, one level deep, of bounded size, whatever the text
//! holds. A tree of the whole text would take up to a hundred times its length.

use std::{cell::Cell, fmt, io::Read};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

/// Values kept of one text.
const VALUES_KEPT: usize = 8192;
/// Longest text of a value or name that is kept, in bytes.
const TEXT_KEPT: usize = 256;

/// Keeps the wanted keys of an object. Lists and objects behind them keep their plain members; what lies deeper is dropped.
///
/// # Errors
/// When it is no JSON object, or says more behind the wanted keys than any real one.
pub(crate) fn kept(text: &[u8], wanted: &dyn Fn(&str) -> bool) -> Result<Value, serde_json::Error> {
    whole(serde_json::Deserializer::from_slice(text), wanted)
}

/// The same from a stream, which is not held in memory.
///
/// # Errors
/// As `kept`, and when it cannot be read.
pub(crate) fn kept_of(text: impl Read, wanted: &dyn Fn(&str) -> bool) -> Result<Value, serde_json::Error> {
    whole(serde_json::Deserializer::from_reader(std::io::BufReader::new(text)), wanted)
}

fn whole<'de, R: serde_json::de::Read<'de>>(
    mut from: serde_json::Deserializer<R>,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Value, serde_json::Error> {
    let left = Cell::new(VALUES_KEPT);
    let value = Top { wanted, left: &left }.deserialize(&mut from)?;
    from.end()?;
    Ok(value)
}

struct Top<'a> {
    wanted: &'a dyn Fn(&str) -> bool,
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Top<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if (self.wanted)(&name) {
                let value = map.next_value_seed(Part { left: self.left, inside: false })?;
                kept.insert(name, value.unwrap_or(Value::Null));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Object(kept))
    }
}

/// A value behind a wanted key, or inside one; `None` for what is dropped.
struct Part<'a> {
    left: &'a Cell<usize>,
    inside: bool,
}

impl Part<'_> {
    fn plain<E: Error>(&self, value: Value) -> Result<Option<Value>, E> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| E::custom("it says more than any real one"))?;
        self.left.set(left);
        Ok(Some(value))
    }
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Value>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        self.plain(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        self.plain(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        self.plain(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        self.plain(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        self.plain(Value::Null)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        // What is longer is still something, and no name that anybody knows.
        let end = value.char_indices().map(|(at, _)| at).take_while(|at| *at <= TEXT_KEPT).last().unwrap_or(0);
        self.plain(if value.len() <= TEXT_KEPT { value.into() } else { value.get(..end).unwrap_or_default().into() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        if self.inside {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(None);
        }
        let mut kept = Vec::new();
        while let Some(item) = list.next_element_seed(Part { left: self.left, inside: true })? {
            // A list inside a list is no plain value, but it is there.
            kept.push(match item {
                Some(item) => item,
                None => self.plain(Value::Object(Map::new()))?.unwrap_or_default(),
            });
        }
        Ok(Some(Value::Array(kept)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        if self.inside {
            while map.next_key::<IgnoredAny>()?.is_some() {
                map.next_value::<IgnoredAny>()?;
            }
            return Ok(None);
        }
        let mut kept = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value_seed(Part { left: self.left, inside: true })?;
            if let Some(value) = value.filter(|_| name.len() <= TEXT_KEPT) {
                kept.insert(name, value);
            }
        }
        Ok(Some(Value::Object(kept)))
    }
}

/// Whether a key of an object is there and not null, without keeping anything of it.
///
/// # Errors
/// When it is no JSON object, or cannot be read.
pub(crate) fn has(text: impl Read, key: &str) -> Result<bool, serde_json::Error> {
    struct Has<'a>(&'a str);
    impl<'de> Visitor<'de> for Has<'_> {
        type Value = bool;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
            let mut found = false;
            while let Some(name) = map.next_key::<String>()? {
                let value = map.next_value::<Option<IgnoredAny>>()?;
                found |= name == self.0 && value.is_some();
            }
            Ok(found)
        }
    }
    let mut from = serde_json::Deserializer::from_reader(std::io::BufReader::new(text));
    let found = from.deserialize_map(Has(key))?;
    from.end()?;
    Ok(found)
}

/// A word that may be anything: kept when it is a truth, told when it is a text, passed over otherwise.
pub(crate) fn truth_or_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<bool>, D::Error> {
    let left = Cell::new(1);
    Ok(match (Part { left: &left, inside: true }).deserialize(from)? {
        Some(Value::Bool(truth)) => Some(truth),
        Some(Value::String(_)) => Some(true),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Option<Value> {
        kept(text.as_bytes(), &|key| key.starts_with('k')).ok()
    }

    #[test]
    fn the_wanted_keys_stay_one_level_deep() {
        let text = r#"{"x":[[[1]]],"k1":"a","k2":{"a":1,"b":[1,2],"c":{"d":1},"e":null},"k3":[1,"b",[3],{}],"k4":null,"k5":-1.5}"#;
        let wanted = json!({"k1": "a", "k2": {"a": 1, "e": null}, "k3": [1, "b", {}, {}], "k4": null, "k5": -1.5});
        assert_eq!(read(text), Some(wanted.clone()));
        assert_eq!(kept_of(text.as_bytes(), &|key| key.starts_with('k')).ok(), Some(wanted));
        for bad in ["", "[]", "7", "{", "{} x", "{\"k\":}"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_text_that_says_too_much_is_refused_or_cut() {
        let many = |count: usize| format!("{{\"k\":[{}0]}}", "0,".repeat(count));
        assert!(read(&many(VALUES_KEPT - 2)).is_some());
        assert!(read(&many(VALUES_KEPT)).is_none());
        assert!(read(&format!("{{\"k\":[{}0]}}", "[],".repeat(VALUES_KEPT))).is_none());
        let long = read(&format!("{{\"k\":\"{}\"}}", "ü".repeat(5000))).unwrap();
        assert!(long["k"].as_str().unwrap().len() <= TEXT_KEPT);
        assert!(
            read(&format!("{{\"x\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000))).is_some(),
            "what is passed over may be as deep as it likes"
        );
        assert!(read(&format!("{{\"k\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000))).is_some());
    }

    #[test]
    fn whether_a_key_is_there_costs_nothing() {
        assert!(has(&br#"{"a":1,"t":[{"x":"y"}]}"#[..], "t").unwrap());
        assert!(!has(&br#"{"a":1,"t":null}"#[..], "t").unwrap());
        assert!(has(&b"[]"[..], "t").is_err());
    }
}
