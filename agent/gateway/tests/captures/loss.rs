//! No field of a recorded request vanishes: change its value, and the chat request changes (or what is kept for the answer, or the request
//! is refused); else it stands on the named list of ignored fields, or is reported.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use warden_gateway::dialects::ignored;

use super::corpus::{self, Made, make};

/// A step down from an object or a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Member(String),
    Item(usize),
}

/// What an engine gets as it stands: changed as a whole, not member by member.
const OPAQUE: [&str; 4] = ["input_schema", "parameters", "schema", "input"];

/// What became of the fields of one dialect.
#[derive(Default)]
struct Tally {
    used: usize,
    ignored: BTreeMap<String, usize>,
    hosted: usize,
    otherwise: usize,
    reported: usize,
    lost: Vec<String>,
}

fn held_against_the_list(route: &str) -> Tally {
    let mut seen = BTreeMap::new();
    let mut tally = Tally::default();
    for capture in corpus::of(route).into_iter().filter(|c| !c.route().ends_with("/count_tokens")) {
        let body: Value = serde_json::from_str(&capture.body).unwrap();
        let before = make(route, &body.to_string());
        assert!(before.chat.is_ok(), "{}: {:?}", capture.name, before.chat);
        let mut paths = Vec::new();
        leaves(&body, &mut Vec::new(), &mut paths);
        for path in paths {
            // The same field in the same kind of place is tried twice and not a thousand times.
            let times = seen.entry(signature(&body, &path)).or_insert(0);
            *times += 1;
            if *times > 2 {
                continue;
            }
            let changed = |otherwise: &dyn Fn(&mut Value)| {
                let mut changed = body.clone();
                otherwise(at_mut(&mut changed, &path));
                make(route, &changed.to_string())
            };
            let differs = |after: &Made| (&after.chat, &after.kept) != (&before.chat, &before.kept);
            let after = changed(&change);
            // Of some words only one is told from all others.
            if differs(&after) || differs(&changed(&|value| *value = json!("disabled"))) {
                tally.used += 1;
            } else if is_told_otherwise(&body, &before, &path) {
                tally.otherwise += 1;
            } else if let Some(entry) = ignored_value(&before, &after).or_else(|| ignored_at(route, &body, &path)) {
                *tally.ignored.entry(entry).or_default() += 1;
            } else if is_hosted(&body, &path) {
                tally.hosted += 1;
            } else if !before.left.is_empty() {
                tally.reported += 1;
            } else {
                tally.lost.push(format!("{}: {path:?}", capture.name));
            }
        }
    }
    tally
}

fn nothing_is_lost(route: &str) {
    let tally = held_against_the_list(route);
    assert!(tally.lost.is_empty(), "{route}: these change nothing and stand on no list:\n{}", tally.lost.join("\n"));
    assert_eq!(tally.reported, 0, "{route}: recorded requests hold fields that nobody knows");
    assert!(tally.used > 60 && tally.ignored.len() > 3, "{route}: {} used, {:?}", tally.used, tally.ignored);
    let Tally { used, hosted, otherwise, ignored, .. } = &tally;
    println!("{route}: {used} used, {hosted} of tools that a provider runs, {otherwise} told otherwise, ignored by name: {ignored:?}");
}

#[test]
fn no_field_of_a_captured_messages_body_vanishes() {
    nothing_is_lost("/v1/messages");
}

#[test]
fn no_field_of_a_captured_responses_body_vanishes() {
    nothing_is_lost("/v1/responses");
}

/// Every value that is no object or list with something in it.
fn leaves(value: &Value, path: &mut Vec<Step>, out: &mut Vec<Vec<Step>>) {
    let opaque = matches!(path.last(), Some(Step::Member(name)) if OPAQUE.contains(&name.as_str())) && value.is_object();
    match value {
        Value::Object(object) if !object.is_empty() && !opaque => {
            for (name, inner) in object {
                path.push(Step::Member(name.clone()));
                leaves(inner, path, out);
                path.pop();
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for (at, inner) in list.iter().enumerate() {
                path.push(Step::Item(at));
                leaves(inner, path, out);
                path.pop();
            }
        }
        // null says the same as nothing.
        Value::Null => {}
        _ => out.push(path.clone()),
    }
}

/// The kind of place a field stands in: names on the way, and what the objects on the way say they are.
fn signature(body: &Value, path: &[Step]) -> Vec<String> {
    let mut words = Vec::new();
    let mut at = body;
    for step in path {
        for word in ["type", "role"] {
            words.extend(at[word].as_str().map(str::to_owned));
        }
        match step {
            Step::Member(name) => {
                words.push(name.clone());
                at = &at[name.as_str()];
            }
            Step::Item(item) => at = &at[*item],
        }
    }
    words
}

fn at_mut<'v>(value: &'v mut Value, path: &[Step]) -> &'v mut Value {
    path.iter().fold(value, |value, step| match step {
        Step::Member(name) => &mut value[name.as_str()],
        Step::Item(at) => &mut value[*at],
    })
}

fn change(value: &mut Value) {
    *value = match value.take() {
        Value::String(text) => Value::from(format!("{text}~")),
        Value::Bool(flag) => Value::from(!flag),
        Value::Number(number) => number.as_u64().map_or_else(|| json!(number.as_f64().unwrap_or_default() / 2.0 + 0.1), |n| Value::from(n + 1)),
        Value::Object(mut object) => {
            object.insert("~".to_owned(), json!(1));
            object.into()
        }
        _ => json!(["~"]),
    };
}

/// The few places where a value need not change anything, with the reason of each.
fn is_told_otherwise(body: &Value, before: &Made, path: &[Step]) -> bool {
    let names: Vec<&str> = path.iter().filter_map(|step| if let Step::Member(name) = step { Some(name.as_str()) } else { None }).collect();
    let value = path.iter().fold(body, |value, step| match step {
        Step::Member(name) => &value[name.as_str()],
        Step::Item(at) => &value[*at],
    });
    let item = path.get(1).map(|step| if let Step::Item(at) = step { &body["input"][*at] } else { &Value::Null });
    match names.as_slice() {
        // The text of a piece of thinking is read whatever kind of piece it is called.
        ["input", "summary" | "content", "type"] => item.is_some_and(|item| item["type"] == "reasoning"),
        // The line about billing is taken out as a whole.
        ["system", "text"] => value.as_str().is_some_and(|text| text.starts_with("x-anthropic-billing-header:")),
        // Where no tool is left there is no choice.
        ["tool_choice", ..] => before.chat.as_ref().is_ok_and(|chat| !String::from_utf8_lossy(chat).contains("\"tools\":[")),
        _ => false,
    }
}

/// The entry of the list that covers a value: another one in its place is reported.
fn ignored_value(before: &Made, after: &Made) -> Option<String> {
    let told = after.left.iter().find(|entry| !before.left.contains(entry))?.strip_suffix('~')?.to_owned();
    let (at, _) = told.match_indices('.').find(|(at, _)| ignored::is_ignored(&told[..*at], &told[at + 1..]))?;
    Some(format!("{}: {}", &told[..at], &told[at + 1..]))
}

/// The entry of the list that covers a field or something it stands in. The place of an object is asked of the reader itself: another name
/// for the member is reported with it.
fn ignored_at(route: &str, body: &Value, path: &[Step]) -> Option<String> {
    const STRANGE: &str = "nobody-knows-this";
    for until in (1..=path.len()).rev() {
        let Step::Member(name) = &path[until - 1] else { continue };
        let mut renamed = body.clone();
        let Some(object) = at_mut(&mut renamed, &path[..until - 1]).as_object_mut() else { continue };
        let value = object.remove(name)?;
        object.insert(STRANGE.to_owned(), value);
        let left: BTreeSet<String> = make(route, &renamed.to_string()).left.into_iter().collect();
        let Some(place) = left.iter().find_map(|entry| entry.strip_suffix(STRANGE)?.strip_suffix('.')) else { continue };
        if ignored::is_ignored(place, name) {
            return Some(format!("{place}.{name}"));
        }
    }
    None
}

/// Whether a field belongs to something that is left out as a whole, by name: a tool that its provider runs, the trace of one, or a tool
/// that its client has not loaded yet.
fn is_hosted(body: &Value, path: &[Step]) -> bool {
    let searches = body["tools"].as_array().is_some_and(|tools| tools.iter().any(|t| t["name"] == "ToolSearch"));
    (0..path.len()).any(|until| {
        let object = path[..until].iter().fold(body, |value, step| match step {
            Step::Member(name) => &value[name.as_str()],
            Step::Item(at) => &value[*at],
        });
        let kind = object["type"].as_str().unwrap_or_default();
        let in_tools = path.first() == Some(&Step::Member("tools".to_owned()));
        let tool = in_tools && object.get("input_schema").is_none() && ignored::is_hosted_tool(kind);
        let trace = !in_tools && (ignored::is_hosted_block(kind) || ignored::is_hosted_item(kind));
        tool || trace || (in_tools && searches && object["defer_loading"] == true)
    })
}
