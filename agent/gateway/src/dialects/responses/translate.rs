//! A Responses request becomes a chat request.

use warden_domain::{Problem, ProblemKind};

use super::{
    request::{Body, Item, Part},
    tools,
};
use crate::dialects::{
    chat::{
        request::{Call, ChatRequest, Format, Part as Said, Target},
        turns::Turns,
    },
    content::Content,
    ignored, numbers,
    text::{Quoted, Text},
};

/// The chat request. Everything borrows from the body.
pub(super) fn chat<'a>(body: &Body<'a>, target: &Target<'_>) -> Result<ChatRequest<'a>, Problem> {
    refuse_what_needs_a_memory(body)?;
    let mut turns = Turns::new(target.images);
    match &body.instructions {
        None => {}
        Some(Content::Text(text)) => turns.system((*text).into()),
        Some(Content::Blocks(items)) => items.iter().try_for_each(|i| item(&mut turns, i))?,
    }
    match &body.input {
        None => return Err(bad("The request has no 'input'.", "input")),
        Some(Content::Text(text)) => turns.user(Said::Text((*text).into())),
        Some(Content::Blocks(items)) => items.iter().try_for_each(|i| item(&mut turns, i))?,
    }
    let tools = tools::list(body)?;
    let mut sampling = Vec::new();
    for (name, value) in [("temperature", body.temperature), ("top_p", body.top_p)] {
        if let Some(value) = value {
            sampling.push((name, numbers::number(value, name)?));
        }
    }
    Ok(ChatRequest {
        messages: turns.finish()?,
        parallel: body.parallel_tool_calls.filter(|_| !tools.tools.is_empty()),
        choice: tools.choice,
        tools: tools.tools,
        max_tokens: body.max_output_tokens.map(|value| numbers::max_tokens(value, "max_output_tokens")).transpose()?,
        stop: Vec::new(),
        sampling,
        format: format(body)?,
        no_thinking: !thinks(body),
        effort: effort(body),
        stream: body.stream.unwrap_or(false),
    })
}

/// Nothing of an answer is kept here, so what needs an earlier one is refused instead of answered wrongly.
fn refuse_what_needs_a_memory(body: &Body<'_>) -> Result<(), Problem> {
    let way_out = "Send the whole conversation in 'input', and leave the field out.";
    let field = match () {
        () if body.previous_response_id.is_some() => "previous_response_id",
        () if body.conversation.is_some() => "conversation",
        () if body.prompt.is_some() => "prompt",
        () if body.background == Some(true) => "background",
        () => return Ok(()),
    };
    Err(bad(format!("'{field}' cannot be used: this server keeps no answers and no conversations."), field).hint(way_out))
}

/// Whether the model may think: asked for, and not with the effort "none".
pub(super) fn thinks(body: &Body<'_>) -> bool {
    body.reasoning.as_ref().is_some_and(|r| !r.effort.is_some_and(|effort| effort.is("none")))
}

/// The effort in words that every engine knows.
fn effort(body: &Body<'_>) -> Option<&'static str> {
    match &*body.reasoning.as_ref()?.effort?.decoded() {
        "minimal" | "low" => Some("low"),
        "medium" => Some("medium"),
        "high" | "xhigh" | "max" => Some("high"),
        _ => None,
    }
}

fn format<'a>(body: &Body<'a>) -> Result<Option<Format<'a>>, Problem> {
    let Some(format) = body.text.as_ref().and_then(|t| t.format.as_ref()) else { return Ok(None) };
    let kind = format.kind.map(Quoted::decoded).unwrap_or_default();
    match (&*kind, format.schema) {
        ("text", _) => Ok(None),
        ("json_object", _) => Ok(Some(Format::Json)),
        ("json_schema", Some(schema)) => Ok(Some(Format::Schema { name: format.name, schema, strict: format.strict.unwrap_or(true) })),
        _ => Err(bad("'text.format' must be text, json_object, or json_schema with a 'schema'.", "text.format")),
    }
}

fn item<'a>(turns: &mut Turns<'a>, item: &Item<'a>) -> Result<(), Problem> {
    let kind = item.kind.map_or("message".into(), Quoted::decoded);
    match &*kind {
        "message" => message(turns, item),
        "reasoning" => {
            let mut thinking = Text::default();
            let content = match &item.content {
                Some(Content::Blocks(parts)) => parts.as_slice(),
                _ => &[],
            };
            let whole = content.iter().filter_map(|p| p.text);
            let short = item.summary.iter().flatten().filter_map(|p| p.text);
            if content.is_empty() {
                short.for_each(|t| thinking.paragraph(t.into()))
            } else {
                whole.for_each(|t| thinking.paragraph(t.into()))
            }
            turns.assistant(|turn| turn.thinking.paragraph(thinking));
            Ok(())
        }
        "function_call" => {
            let arguments = item.arguments.map_or_else(|| Text::plain("{}"), Text::from);
            turns.call(Call { id: call_id(item)?, name: name(item)?, arguments });
            Ok(())
        }
        "custom_tool_call" => {
            let arguments = match item.input {
                Some(input) => Text::plain("{\"input\":\"").nested(input).then("\"}"),
                None => Text::plain("{\"input\":\"\"}"),
            };
            turns.call(Call { id: call_id(item)?, name: name(item)?, arguments });
            Ok(())
        }
        "function_call_output" | "custom_tool_call_output" => output(turns, item),
        kind if ignored::is_hosted_item(kind) => Ok(()),
        kind => {
            let kind: String = kind.chars().take(60).collect();
            Err(bad(format!("An input item of type {kind:?} cannot be used here."), "input").hint("Start a new conversation with this model."))
        }
    }
}

fn message<'a>(turns: &mut Turns<'a>, item: &Item<'a>) -> Result<(), Problem> {
    let role = item.role.map(Quoted::decoded).ok_or_else(|| bad("A message item needs a 'role'.", "input"))?;
    let parts = match &item.content {
        None => return Ok(()),
        Some(Content::Text(text)) => vec![Said::Text((*text).into())],
        Some(Content::Blocks(parts)) => parts.iter().map(part).collect::<Result<Vec<_>, _>>()?,
    };
    match &*role {
        "user" => parts.into_iter().for_each(|part| turns.user(part)),
        "assistant" => {
            let text = words(parts, &role)?;
            turns.assistant(|turn| turn.text.paragraph(text));
        }
        "system" | "developer" => turns.system(words(parts, &role)?),
        role => return Err(bad(format!("There is no role {role:?}; a message is of 'user', 'assistant', 'system' or 'developer'."), "input")),
    }
    Ok(())
}

/// The text of a message that can hold nothing else.
fn words<'a>(parts: Vec<Said<'a>>, role: &str) -> Result<Text<'a>, Problem> {
    let mut words = Text::default();
    for part in parts {
        match part {
            Said::Text(text) => words.paragraph(text),
            Said::Image(_) => {
                return Err(bad(format!("A message of the role {role:?} cannot hold an image."), "input")
                    .hint("Send the image in a message of the user, or in the output of a tool."));
            }
        }
    }
    Ok(words)
}

fn output<'a>(turns: &mut Turns<'a>, item: &Item<'a>) -> Result<(), Problem> {
    let (mut text, mut images) = (Text::default(), Vec::new());
    match &item.output {
        None => {}
        Some(Content::Text(said)) => text = (*said).into(),
        Some(Content::Blocks(parts)) => {
            for said in parts {
                match part(said)? {
                    Said::Text(more) => text.paragraph(more),
                    Said::Image(url) => images.push(url),
                }
            }
        }
    }
    turns.result(call_id(item)?, text, images)
}

fn part<'a>(part: &Part<'a>) -> Result<Said<'a>, Problem> {
    let kind = part.kind.map(Quoted::decoded).unwrap_or_default();
    match (&*kind, part.text, part.image_url) {
        ("input_text" | "output_text" | "text" | "summary_text" | "reasoning_text", Some(text), _) => Ok(Said::Text(text.into())),
        ("refusal", _, _) => Ok(Said::Text(part.refusal.map_or_else(Text::default, Text::from))),
        ("input_image", _, Some(url)) => Ok(Said::Image(url.into())),
        ("input_image" | "input_file", _, _) => {
            Err(bad("Stored files do not exist here.", "input").hint("Send an image as 'image_url' with a data URL, and a document as text."))
        }
        (kind, _, _) => {
            let kind: String = kind.chars().take(60).collect();
            Err(bad(format!("Content of type {kind:?} cannot be used here."), "input").hint("Usable are input_text, output_text and input_image."))
        }
    }
}

fn call_id<'a>(item: &Item<'a>) -> Result<Quoted<'a>, Problem> {
    item.call_id.ok_or_else(|| bad("Every call and every output needs a 'call_id'.", "input"))
}

fn name<'a>(item: &Item<'a>) -> Result<Quoted<'a>, Problem> {
    item.name.ok_or_else(|| bad("Every call needs a 'name'.", "input"))
}

pub(super) fn bad(message: impl Into<String>, param: &str) -> Problem {
    Problem::new(ProblemKind::BadRequest, message).param(param)
}
