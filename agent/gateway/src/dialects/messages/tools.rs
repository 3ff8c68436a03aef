//! The tools of a Messages request.
//!
//! A deferred tool is kept from the model until a search named it, if the client has a tool to search with; then it goes to the end of
//! the list, in the order named, so that the list never changes in the middle and an engine keeps its cached prefix.

use std::collections::{HashMap, HashSet};

use warden_domain::Problem;

use super::{
    request::{Body, Tool as Declared},
    translate::bad,
};
use crate::dialects::{
    chat::request::{Choice, Tool},
    content::Content,
    text::{Quoted, Text},
};

/// The tool with which a client loads deferred ones.
const SEARCH: &str = "ToolSearch";

/// What came of the tools.
#[derive(Debug, Default)]
pub(super) struct Tools<'a> {
    pub tools: Vec<Tool<'a>>,
    pub choice: Option<Choice<'a>>,
    pub parallel: Option<bool>,
    /// There were tools, and all were for searching the web.
    pub search_was_all: bool,
}

/// Reads them.
pub(super) fn list<'a>(body: &Body<'a>) -> Result<Tools<'a>, Problem> {
    let declared = body.tools.as_deref().unwrap_or_default();
    let searches = declared.iter().any(|t| t.defer_loading != Some(true) && t.name.is_some_and(|n| n.is(SEARCH)));
    let mut out = Tools::default();
    for tool in declared.iter().filter(|t| !(searches && t.defer_loading == Some(true))) {
        out.tools.extend(usable(tool)?);
    }
    if searches {
        let known: HashSet<Quoted<'_>> = out.tools.iter().map(|t| t.name).collect();
        let mut late = HashMap::new();
        for tool in declared.iter().filter(|t| t.defer_loading == Some(true)) {
            if let Some(name) = tool.name.filter(|name| !known.contains(name)) {
                late.entry(name).or_insert(tool);
            }
        }
        for name in referenced(body) {
            out.tools.extend(late.remove(&name).map(usable).transpose()?.flatten());
        }
    }
    let is_search = |t: &Declared<'_>| t.kind.is_some_and(|kind| kind.escaped().starts_with("web_search"));
    out.search_was_all = out.tools.is_empty() && !declared.is_empty() && declared.iter().all(is_search);
    let Some(choice) = body.tool_choice.as_ref().filter(|_| !out.tools.is_empty()) else { return Ok(out) };
    let kind = choice.kind.map(Quoted::decoded).unwrap_or_default();
    out.choice = match (&*kind, choice.name) {
        ("auto", _) => Some(Choice::Auto),
        ("any", _) => Some(Choice::Required),
        ("none", _) => Some(Choice::None),
        // One that was left out cannot be called; the model then decides by itself.
        ("tool", Some(name)) => Some(if out.tools.iter().any(|t| t.name == name) { Choice::Named(name) } else { Choice::Auto }),
        _ => return Err(bad("'tool_choice' must be auto, any, none, or tool with a 'name'.", "tool_choice")),
    };
    out.parallel = choice.disable_parallel_tool_use.filter(|disabled| *disabled).map(|_| false);
    Ok(out)
}

/// A tool that the client runs itself; one without a schema is run by its provider, and so by nobody here.
fn usable<'a>(tool: &Declared<'a>) -> Result<Option<Tool<'a>>, Problem> {
    let Some(schema) = tool.input_schema else { return Ok(None) };
    let name = tool.name.ok_or_else(|| bad("Every tool needs a 'name'.", "tools"))?;
    Ok(Some(Tool { name, description: tool.description.map_or_else(Text::default, Text::from), parameters: schema.get() }))
}

/// Names of tools that searches found, in the order found.
fn referenced<'b, 'a>(body: &'b Body<'a>) -> impl Iterator<Item = Quoted<'a>> + use<'b, 'a> {
    body.messages
        .iter()
        .flatten()
        .filter_map(|m| blocks(m.content.as_ref()))
        .flatten()
        .filter_map(|b| blocks(b.content.as_ref()))
        .flatten()
        .filter_map(|b| b.tool_name)
}

fn blocks<'b, B>(content: Option<&'b Content<'_, B>>) -> Option<&'b Vec<B>> {
    match content {
        Some(Content::Blocks(blocks)) => Some(blocks),
        _ => None,
    }
}
