//! The body of `GET /v1/models`, in a shape that the SDKs of both vendors page through.

use jiff::Timestamp;
use warden_domain::{Problem, ProblemKind, units::Tokens};

use super::json::{self, Object};

/// A model, or another name of one, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The name clients use.
    pub name: &'a str,
    /// When it was made, in seconds since the epoch.
    pub created: i64,
    /// Its context window, when known.
    pub window: Option<Tokens>,
}

/// One page of the models, by the query of the request: `limit`, and `after_id` or `before_id`. Without a limit it holds all.
///
/// # Errors
/// `BadRequest` when the query asks for what cannot be: no number, or a name that is not in the list.
pub fn page(models: &[Listed<'_>], query: Option<&str>) -> Result<Vec<u8>, Problem> {
    let asked = Asked::read(query.unwrap_or_default())?;
    let at = |field: &'static str, name: &str| {
        models.iter().position(|m| m.name == name).ok_or_else(|| wrong(field, format!("'{field}' names no model in this list.")))
    };
    let from = asked.after.as_deref().map_or(Ok(0), |name| at("after_id", name).map(|place| place + 1))?;
    let until = asked.before.as_deref().map_or(Ok(models.len()), |name| at("before_id", name))?;
    let range = models.get(from..until).unwrap_or_default();
    let limit = asked.limit.unwrap_or(usize::MAX).min(range.len());
    // Backwards, the page is the one right before the name.
    let page = if asked.before.is_some() { &range[range.len() - limit..] } else { &range[..limit] };
    Ok(json::document(|o| {
        o.string("object", "list");
        o.list("data", |list| page.iter().for_each(|model| list.object(|o| fields(o, model))));
        o.flag("has_more", page.len() < range.len());
        o.string_or_null("first_id", page.first().map(|m| m.name));
        o.string_or_null("last_id", page.last().map(|m| m.name));
    }))
}

/// The body of `GET /v1/models/{name}`.
#[must_use]
pub fn one(model: &Listed<'_>) -> Vec<u8> {
    json::document(|o| fields(o, model))
}

fn fields(o: &mut Object<'_>, model: &Listed<'_>) {
    o.string("id", model.name);
    o.string("object", "model");
    o.string("type", "model");
    o.string("display_name", model.name);
    o.number("created", model.created);
    o.string("created_at", &Timestamp::from_second(model.created).unwrap_or_default().to_string());
    o.string("owned_by", "lm-warden");
    match model.window {
        Some(window) => o.number("max_model_len", window.0),
        None => o.null("max_model_len"),
    }
}

/// What a query asks for.
#[derive(Default)]
struct Asked {
    limit: Option<usize>,
    after: Option<String>,
    before: Option<String>,
}

impl Asked {
    fn read(query: &str) -> Result<Self, Problem> {
        let mut asked = Self::default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "limit" => match value.parse() {
                    Ok(limit @ 1..=1000) => asked.limit = Some(limit),
                    _ => return Err(wrong("limit", "'limit' must be a whole number from 1 to 1000.".to_owned())),
                },
                // One client's SDK says `after` where the other says `after_id`.
                "after_id" | "after" => asked.after = Some(plain(value)),
                "before_id" => asked.before = Some(plain(value)),
                _ => {}
            }
        }
        Ok(asked)
    }
}

/// A value of a query without its percent signs and pluses.
fn plain(value: &str) -> String {
    unescaped(&value.replace('+', " "))
}

/// A part of a path without its percent signs; a sign that begins none stays.
#[must_use]
pub fn unescaped(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match (*first, tail) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                bytes.extend(hex::decode([*high, *low]).unwrap_or_default());
                rest = after;
            }
            (other, _) => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn wrong(field: &str, message: String) -> Problem {
    Problem::new(ProblemKind::BadRequest, message).param(field)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ask(query: Option<&str>) -> Value {
        let models: Vec<Listed<'_>> = ["a", "b c", "d", "e"]
            .iter()
            .map(|name| Listed { name, created: 1_700_000_000, window: (*name == "a").then_some(Tokens(4096)) })
            .collect();
        serde_json::from_slice(&page(&models, query).unwrap()).unwrap()
    }

    fn names(page: &Value) -> Vec<&str> {
        page["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect()
    }

    #[test]
    fn a_page_holds_what_both_sdks_look_for() {
        let all = ask(None);
        assert_eq!((names(&all), &all["has_more"], &all["last_id"]), (vec!["a", "b c", "d", "e"], &json!(false), &json!("e")));
        assert_eq!(
            all["data"][0],
            json!({"id": "a", "object": "model", "type": "model", "display_name": "a", "created": 1_700_000_000, "created_at": "2023-11-14T22:13:20Z", "owned_by": "lm-warden", "max_model_len": 4096})
        );
        assert!(all["data"][1]["max_model_len"].is_null());
    }

    #[test]
    fn pages_follow_each_other_in_both_directions_without_a_gap() {
        let first = ask(Some("limit=2"));
        assert_eq!((names(&first), &first["has_more"]), (vec!["a", "b c"], &json!(true)));
        let second = ask(Some("limit=2&after_id=b%20c&beta=true"));
        assert_eq!((names(&second), &second["has_more"]), (vec!["d", "e"], &json!(false)));
        let back = ask(Some("limit=1&before_id=d"));
        assert_eq!((names(&back), &back["has_more"]), (vec!["b c"], &json!(true)));
        assert_eq!(ask(Some("after_id=e"))["first_id"], Value::Null);
    }

    #[test]
    fn a_name_with_a_slash_is_found_however_its_path_is_written() {
        for path in ["org/beta-7B", "org%2Fbeta-7B", "org%2fbeta-7B"] {
            assert_eq!(unescaped(path), "org/beta-7B");
        }
        assert_eq!((unescaped("a+b%"), plain("a+b%2")), ("a+b%".to_owned(), "a b%2".to_owned()));
    }

    #[test]
    fn a_page_after_nobody_is_an_error_and_not_everything() {
        for query in ["after_id=x", "before_id=x", "limit=0", "limit=many", "limit=1001"] {
            assert_eq!(page(&[], Some(query)).unwrap_err().kind, ProblemKind::BadRequest, "{query}");
        }
    }
}
