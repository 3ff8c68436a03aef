//! JSON in one form only (RFC 8785, restricted): what is signed is these bytes, and a file that is not written exactly so is refused, so
//! that two readers can never see two meanings. Restricted means: member names are ASCII, numbers are integers within ±(2^53 - 1).
//! Duplicate member names are an error of their own.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::refusal::{Document, Refusal};

const EXACT: i64 = 9_007_199_254_740_991;
const DUPLICATE: &str = "duplicate member ";

/// Writes a value in canonical form.
///
/// # Errors
/// When the value holds a fraction, an integer beyond ±(2^53 - 1) or a member name that is not ASCII; the text says which.
pub fn canonical(value: &Value) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    write(value, &mut out)?;
    Ok(out)
}

fn write(value: &Value, out: &mut Vec<u8>) -> Result<(), String> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => match number.as_i64() {
            Some(whole) if (-EXACT..=EXACT).contains(&whole) => out.extend_from_slice(whole.to_string().as_bytes()),
            _ => return Err(format!("the number {number} is not a whole number within 53 bits")),
        },
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(item, out)?;
            }
            out.push(b']');
        }
        Value::Object(members) => {
            let sorted: BTreeMap<&str, &Value> = members.iter().map(|(name, value)| (name.as_str(), value)).collect();
            out.push(b'{');
            for (at, (name, value)) in sorted.into_iter().enumerate() {
                if !name.is_ascii() {
                    return Err(format!("the member name {name:?} is not ASCII"));
                }
                if at > 0 {
                    out.push(b',');
                }
                write_text(name, out);
                out.push(b':');
                write(value, out)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for letter in text.chars() {
        match letter {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '\r' => out.extend_from_slice(b"\\r"),
            low if low < ' ' => out.extend_from_slice(format!("\\u{:04x}", low as u32).as_bytes()),
            other => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

/// Reads a document that must be at most `limit` bytes and in canonical form. The size is looked at before anything is parsed.
pub(crate) fn parse(document: Document, bytes: &[u8], limit: usize) -> Result<Value, Refusal> {
    if bytes.len() > limit {
        return Err(Refusal::TooLarge { document, bytes: bytes.len() as u64, limit: limit as u64 });
    }
    let Strict(value) = serde_json::from_slice(bytes).map_err(|e| {
        let text = e.to_string();
        match text.strip_prefix(DUPLICATE) {
            Some(rest) => Refusal::DuplicateMember { document, name: rest.split(" at line").next().unwrap_or_default().to_owned() },
            None => Refusal::Unreadable { document, detail: text },
        }
    })?;
    match canonical(&value) {
        Ok(form) if form == bytes => Ok(value),
        Ok(_) => Err(Refusal::NotCanonical { document }),
        Err(detail) => Err(Refusal::Unreadable { document, detail }),
    }
}

/// A value whose objects have no member twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON with whole numbers and no member twice")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Err(E::custom(format!("the number {value} is not a whole number")))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Strict(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = serde_json::Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let Strict(value) = map.next_value()?;
            if members.contains_key(&name) {
                return Err(de::Error::custom(format!("{DUPLICATE}{name:?}")));
            }
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Value, Refusal> {
        parse(Document::Release, text.as_bytes(), 1000)
    }

    #[test]
    fn members_are_sorted_and_nothing_is_padded() {
        let bytes = canonical(&json!({"b": [1, -2, null, true], "a": {"z": "x\n\u{1}é\"", "B": 0}})).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), r#"{"a":{"B":0,"z":"x\n\u0001é\""},"b":[1,-2,null,true]}"#);
    }

    #[test]
    fn a_second_way_to_write_the_same_is_refused() {
        assert!(read(r#"{"a":1,"b":"A"}"#).is_ok());
        for other in [r#"{"b":"A","a":1}"#, r#"{ "a":1,"b":"A"}"#, r#"{"a":1,"b":"\u0041"}"#, "{\"a\":1,\"b\":\"A\"}\n"] {
            assert!(matches!(read(other), Err(Refusal::NotCanonical { .. })), "{other}");
        }
    }

    #[test]
    fn a_member_given_twice_is_named() {
        assert!(matches!(read(r#"{"a":{"x":1,"x":1}}"#), Err(Refusal::DuplicateMember { name, .. }) if name == "\"x\""));
    }

    #[test]
    fn fractions_huge_numbers_and_rubbish_are_refused() {
        for bad in ["{\"a\":1.5}", "{\"a\":9007199254740992}", "{\"a\":1e3}", "{\"ä\":1}", "{", "", "{}{}", "\u{feff}{}"] {
            assert!(matches!(read(bad), Err(Refusal::Unreadable { .. })), "{bad}");
        }
        assert!(matches!(read(&"[".repeat(500)), Err(Refusal::Unreadable { .. })), "deep nesting");
    }

    #[test]
    fn the_size_is_looked_at_before_anything_is_parsed() {
        assert!(matches!(parse(Document::Root, &[b'['; 11], 10), Err(Refusal::TooLarge { bytes: 11, limit: 10, .. })));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-EXACT..=EXACT).prop_map(Value::from),
            any::<String>().prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map("[ -~]{0,6}", inner, 0..6).prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn canonical_form_reads_back_as_the_same_value(value in any_value()) {
            let bytes = canonical(&value).unwrap();
            prop_assert_eq!(parse(Document::Release, &bytes, 1 << 20).unwrap(), value);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(Document::Release, &bytes, 1000);
        }
    }
}
