//! The tables of `docs/api.md` and the description the box serves name the same calls.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../../tests/fakes/ports.rs"]
mod ports;
#[path = "control/script.rs"]
mod script;

use std::collections::BTreeSet;

use ports::World;
use script::Script;

const PAGE: &str = include_str!("../../../docs/api.md");

/// The calls of a table row's first cell: `GET/PUT /api/alerts` is two.
fn calls(row: &str) -> Vec<String> {
    let cell = row.split('|').nth(1).unwrap_or_default();
    let quoted = cell.split('`').skip(1).step_by(2);
    let named = quoted.filter_map(|call| call.split_once(' ')).map(|(methods, path)| (methods, path.split('?').next().unwrap_or(path)));
    named.flat_map(|(methods, path)| methods.split('/').map(move |method| format!("{method} {path}"))).collect()
}

#[tokio::test]
async fn every_call_of_the_control_api_is_on_the_page_for_people_and_every_call_there_exists() {
    let description = Script::signed_in(&World::claimed()).get("/api/openapi.json").await.json;
    let mut offered = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        offered.extend(item.as_object().unwrap().keys().map(|method| format!("{} {path}", method.to_uppercase())));
    }
    let told: Vec<String> = PAGE.lines().filter(|line| line.starts_with("| `")).flat_map(calls).filter(|call| !call.contains(" /v1/")).collect();
    let once: BTreeSet<String> = told.iter().cloned().collect();
    // Names in a path are the reader's: `{port}` there may be `{name}` here.
    let shape = |calls: &BTreeSet<String>| calls.iter().map(|call| without_names(call)).collect::<BTreeSet<_>>();
    let (offered, written) = (shape(&offered), shape(&once));
    assert_eq!(offered.difference(&written).collect::<Vec<_>>(), Vec::<&String>::new(), "missing in docs/api.md");
    assert_eq!(written.difference(&offered).collect::<Vec<_>>(), Vec::<&String>::new(), "in docs/api.md only");
    assert_eq!(told.len(), once.len(), "a call stands in two rows");
}

fn without_names(call: &str) -> String {
    call.split('/').map(|part| if part.starts_with('{') { "{}" } else { part }).collect::<Vec<_>>().join("/")
}

#[test]
fn a_row_with_two_methods_names_two_calls() {
    assert_eq!(calls("| `GET/PUT /api/x`, `POST /api/x/{id}?y=1` | `GET /no` |"), ["GET /api/x", "PUT /api/x", "POST /api/x/{id}"]);
}
