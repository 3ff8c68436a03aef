//! What may follow a flag. Pure.
//!
//! A flag's kind of value and a word in; whether the word is harmless, or the sentence why it is not, out. Harmless is what names no file
//! outside the model's own folder and no code.

use serde_json::Value as Json;

/// What follows a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing.
    Nothing,
    /// A number or a word.
    Plain,
    /// One of these words.
    One(&'static [&'static str]),
    /// A JSON object with some of these names at its top; or a number.
    Object(&'static [&'static str]),
    /// The name of a file that lies beside the model.
    Beside,
}

/// Longest plain value.
const LONGEST: usize = 100;
/// Deepest nesting of a JSON value.
const DEEPEST: usize = 4;

/// Whether the word may follow a flag of that kind.
///
/// # Errors
/// The end of a sentence that begins with the flag.
pub(super) fn check(kind: Kind, word: &str) -> Result<(), String> {
    match kind {
        Kind::Nothing => Err("takes no value".to_owned()),
        Kind::Plain if is_plain(word) => Ok(()),
        Kind::Plain => Err("takes a number or a plain word here, no path and no list of other things".to_owned()),
        Kind::One(words) if words.contains(&word) => Ok(()),
        Kind::One(words) => Err(format!("takes one of {} here", words.join(", "))),
        Kind::Object(names) => object(names, word),
        Kind::Beside if is_file_name(word) => Ok(()),
        Kind::Beside => Err("takes the name of a file that lies beside the model, without a folder: put the file there".to_owned()),
    }
}

fn is_plain(word: &str) -> bool {
    !word.is_empty() && word.len() <= LONGEST && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.,:+%-".contains(&b)) && !word.contains("..")
}

pub(super) fn is_file_name(word: &str) -> bool {
    (1..=LONGEST).contains(&word.len())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-+".contains(&b))
        && word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
}

fn object(names: &[&str], word: &str) -> Result<(), String> {
    let parsed: Json = serde_json::from_str(word).map_err(|_| "takes a JSON object here".to_owned())?;
    let Json::Object(parts) = parsed else {
        return if parsed.is_number() { Ok(()) } else { Err("takes a JSON object here".to_owned()) };
    };
    for (name, value) in &parts {
        if !names.contains(&name.as_str()) {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
            return Err(format!("may hold {} here, and `{shown}` is none of them", names.join(", ")));
        }
        if !is_harmless(value, DEEPEST) {
            return Err(format!("may hold numbers, plain words and lists of them; `{name}` holds something else"));
        }
    }
    Ok(())
}

fn is_harmless(value: &Json, deeper: usize) -> bool {
    let identifier = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !names_code(name);
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => true,
        Json::String(text) => is_plain(text) && !text.contains('.'),
        Json::Array(items) => deeper > 0 && items.iter().all(|item| is_harmless(item, deeper - 1)),
        Json::Object(parts) => deeper > 0 && parts.iter().all(|(name, item)| identifier(name) && is_harmless(item, deeper - 1)),
    }
}

/// Names under which a model's settings lead to code or to other files.
fn names_code(name: &str) -> bool {
    ["auto_map", "path", "file", "module", "cls", "class", "plugin", "backend"].iter().any(|part| name.to_ascii_lowercase().contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_no_file_and_no_code() {
        for plain in ["0.9", "-1", "32k", "fp8_e4m3", "hermes", "exps=CPU"] {
            assert_eq!(check(Kind::Plain, plain).is_ok(), plain != "exps=CPU", "{plain}");
        }
        for bad in ["", "/etc/passwd", "../x", "a/b", "a b", "{\"a\":1}", &"x".repeat(101)] {
            assert!(check(Kind::Plain, bad).is_err(), "{bad}");
        }
        for bad in ["", ".hidden", "..", "-x", "a/b", "/a", "a,b", "a b", "é"] {
            assert!(check(Kind::Beside, bad).is_err(), "{bad}");
        }
        check(Kind::Beside, "mmproj-model.f16.gguf").unwrap();
    }

    #[test]
    fn an_object_holds_known_names_and_plain_values_however_deep() {
        let rope = Kind::Object(&["rope_parameters", "mode"]);
        for fine in [r#"{"rope_parameters":{"rope_type":"yarn","factor":4.0,"list":[1,2]}}"#, "{}", "3", r#"{"mode":null}"#] {
            check(rope, fine).unwrap_or_else(|why| panic!("{fine}: {why}"));
        }
        for bad in [
            "",
            "x",
            "\"x\"",
            "[1]",
            r#"{"auto_map":1}"#,
            r#"{"rope_parameters":{"auto_map":1}}"#,
            r#"{"rope_parameters":{"a":{"b":{"Model_Class":1}}}}"#,
            r#"{"rope_parameters":"/etc/passwd"}"#,
            r#"{"rope_parameters":["os.system"]}"#,
            r#"{"mode":{"a":{"b":{"c":{"d":{"e":1}}}}}}"#,
        ] {
            assert!(check(rope, bad).is_err(), "{bad}");
        }
    }
}
