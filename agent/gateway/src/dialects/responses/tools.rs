//! The tools of a Responses request, as functions an engine knows, and the way back.
//!
//! A function is a function. A tool of free text is a function with one string, and its grammar is told in words. A group is taken
//! apart: its members are functions under their own names, and a call of one is answered with the group's name beside it.

use std::{collections::HashSet, sync::Arc};

use serde_json::value::RawValue;
use warden_domain::Problem;

use super::{
    request::{Body, Grammar, Member, Tool as Declared},
    translate::bad,
};
use crate::dialects::{
    chat::request::{Choice, Tool},
    text::{Quoted, Text},
};

/// The one argument of a tool of free text.
const FREE_TEXT: &str = r#"{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool, as plain text."}},"required":["input"],"additionalProperties":false}"#;
/// The arguments of a function that takes none.
const NOTHING: &str = r#"{"type":"object","properties":{}}"#;

/// What a call of a tool is answered as, when it is not a plain function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A tool of free text.
    FreeText,
    /// A member of a group, whose name its members share.
    Group(Arc<str>),
    /// A tool of free text in a group.
    FreeTextOf(Arc<str>),
}

/// What came of the tools.
#[derive(Debug, Default)]
pub(super) struct Tools<'a> {
    pub tools: Vec<Tool<'a>>,
    pub choice: Option<Choice<'a>>,
    /// Those that are no plain functions, by name.
    pub origins: Vec<(String, Origin)>,
}

/// Reads them.
pub(super) fn list<'a>(body: &Body<'a>) -> Result<Tools<'a>, Problem> {
    let (mut out, mut names) = (Tools::default(), HashSet::new());
    let declared = body.tools.as_deref().unwrap_or_default();
    for tool in declared.iter().filter(|t| !is(t.kind, "namespace")) {
        let Some((made, free)) = usable(tool.kind, tool.name, tool.description, tool.parameters, tool.format.as_ref())? else { continue };
        if !names.insert(made.name) {
            return Err(bad(format!("There are two tools named {:?}.", made.name.decoded()), "tools").hint("Give every tool a name of its own."));
        }
        if free {
            out.origins.push((made.name.decoded().into_owned(), Origin::FreeText));
        }
        out.tools.push(made);
    }
    for group in declared.iter().filter(|t| is(t.kind, "namespace")) {
        members(group, &mut out, &mut names)?;
    }
    out.choice = choice(body, &out.tools)?;
    Ok(out)
}

/// Adds the members of a group; one whose name is taken is left out, because its calls could not be told apart.
fn members<'a>(group: &Declared<'a>, out: &mut Tools<'a>, names: &mut HashSet<Quoted<'a>>) -> Result<(), Problem> {
    let name: Arc<str> = group.name.ok_or_else(|| bad("A namespace needs a 'name'.", "tools"))?.decoded().into();
    // What is said of the group is said to the model once, with its first member.
    let mut about = group.description.map_or_else(Text::default, Text::from);
    for Member { kind, name: own, description, parameters, format, .. } in group.tools.iter().flatten() {
        let Some((mut made, free)) = usable(*kind, *own, *description, *parameters, format.as_ref())? else { continue };
        if !names.insert(made.name) {
            continue;
        }
        about.paragraph(std::mem::take(&mut made.description));
        made.description = std::mem::take(&mut about);
        let origin = if free { Origin::FreeTextOf(Arc::clone(&name)) } else { Origin::Group(Arc::clone(&name)) };
        out.origins.push((made.name.decoded().into_owned(), origin));
        out.tools.push(made);
    }
    Ok(())
}

/// A tool the client runs itself, and whether it takes free text; others are run by their provider, and so by nobody here.
fn usable<'a>(
    kind: Option<Quoted<'a>>,
    name: Option<Quoted<'a>>,
    description: Option<Quoted<'a>>,
    parameters: Option<&'a RawValue>,
    format: Option<&Grammar<'a>>,
) -> Result<Option<(Tool<'a>, bool)>, Problem> {
    let free = is(kind, "custom");
    if !free && !is(kind, "function") {
        return Ok(None);
    }
    let name = name.ok_or_else(|| bad("Every tool needs a 'name'.", "tools"))?;
    let mut description = description.map_or_else(Text::default, Text::from);
    if !free {
        return Ok(Some((Tool { name, description, parameters: parameters.map_or(NOTHING, RawValue::get) }, false)));
    }
    if let Some((syntax, definition)) = format.filter(|f| is(f.kind, "grammar")).and_then(|f| Some((f.syntax?, f.definition?))) {
        description.paragraph(Text::plain("The input must follow this grammar (").quoted(syntax).then("):\n").quoted(definition));
    }
    Ok(Some((Tool { name, description, parameters: FREE_TEXT }, true)))
}

fn choice<'a>(body: &Body<'a>, tools: &[Tool<'a>]) -> Result<Option<Choice<'a>>, Problem> {
    let Some(asked) = body.tool_choice.filter(|_| !tools.is_empty()) else { return Ok(None) };
    let by_word = |word: Quoted<'_>| match &*word.decoded() {
        "auto" => Some(Choice::Auto),
        "none" => Some(Choice::None),
        "required" => Some(Choice::Required),
        _ => None,
    };
    let wrong = || bad("'tool_choice' must be auto, none, required, or name a tool.", "tool_choice");
    if let Some(word) = Quoted::of(asked) {
        return by_word(word).map(Some).ok_or_else(wrong);
    }
    let object = body.choice_object().ok_or_else(wrong)?;
    match object.name {
        // One that was left out cannot be called; the model then decides by itself.
        Some(name) => Ok(Some(if tools.iter().any(|t| t.name == name) { Choice::Named(name) } else { Choice::Auto })),
        None => Ok(object.mode.map_or(Some(Choice::Auto), by_word)),
    }
}

fn is(kind: Option<Quoted<'_>>, word: &str) -> bool {
    kind.is_some_and(|kind| kind.is(word))
}
