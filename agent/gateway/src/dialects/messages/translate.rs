//! A Messages request becomes a chat request.

use serde_json::value::RawValue;
use warden_domain::{Problem, ProblemKind};

use super::{
    request::{Block, Body, Message, ResultBlock, Source},
    tools,
};
use crate::dialects::{
    chat::{
        request::{Call, ChatRequest, Format, Part, Target},
        turns::Turns,
    },
    content::Content,
    ignored, numbers,
    text::{Quoted, Text},
};

/// Begins the line about billing that one client puts in front; part of it differs from session to session.
const BILLING: &str = "x-anthropic-billing-header:";
/// What the model is told when searching was all it was given.
const NO_SEARCH: &str = "No web search is available here. Say so plainly; do not make up results, pages or addresses.";

/// The chat request. Everything borrows from the body.
pub(super) fn chat<'a>(body: &Body<'a>, target: &Target<'_>) -> Result<ChatRequest<'a>, Problem> {
    let mut turns = Turns::new(target.images);
    if let Some(system) = &body.system {
        turns.system(system_text(system)?);
    }
    let tools = tools::list(body)?;
    if tools.search_was_all {
        turns.system(Text::plain(NO_SEARCH));
    }
    for message in body.messages.iter().flatten() {
        turn(&mut turns, message)?;
    }
    let thinks = body.thinking.as_ref().and_then(|t| t.kind).is_some_and(|kind| !kind.is("disabled"));
    let format = body.output_config.as_ref().and_then(|c| c.format.as_ref()).or(body.output_format.as_ref());
    let mut sampling = Vec::new();
    for (name, value) in [("temperature", body.temperature), ("top_p", body.top_p), ("top_k", body.top_k)] {
        if let Some(value) = value {
            sampling.push((name, numbers::number(value, name)?));
        }
    }
    Ok(ChatRequest {
        messages: turns.finish()?,
        choice: tools.choice,
        parallel: tools.parallel,
        tools: tools.tools,
        max_tokens: body.max_tokens.map(|value| numbers::max_tokens(value, "max_tokens")).transpose()?,
        stop: body.stop_sequences.clone().unwrap_or_default(),
        sampling,
        format: match format.map(|f| (f.kind, f.schema)) {
            None => None,
            Some((Some(kind), Some(schema))) if kind.is("json_schema") => Some(Format::Schema { name: None, schema, strict: true }),
            Some(_) => return Err(bad("'output_config.format' must be of type json_schema and hold a 'schema'.", "output_config.format")),
        },
        no_thinking: !thinks,
        effort: None,
        stream: body.stream.unwrap_or(false),
    })
}

/// The system prompt: its blocks, without the line about billing.
fn system_text<'a>(content: &Content<'a, Block<'a>>) -> Result<Text<'a>, Problem> {
    match content {
        Content::Text(text) => Ok(unbilled(*text)),
        Content::Blocks(blocks) => {
            let mut whole = Text::default();
            for block in blocks {
                match (block.kind, block.text) {
                    (Some(kind), Some(text)) if kind.is("text") => whole.paragraph(unbilled(text)),
                    _ => return Err(bad("A system prompt may hold text blocks only.", "system")),
                }
            }
            Ok(whole)
        }
    }
}

fn unbilled(text: Quoted<'_>) -> Text<'_> {
    if !text.escaped().starts_with(BILLING) {
        return text.into();
    }
    let decoded = text.decoded();
    match decoded.split_once('\n') {
        None => Text::default(),
        Some((_, rest)) => Text::plain(rest.trim_start_matches('\n').to_owned()),
    }
}

fn turn<'a>(turns: &mut Turns<'a>, message: &Message<'a>) -> Result<(), Problem> {
    let role = message.role.ok_or_else(|| bad("Every message needs a 'role'.", "messages"))?;
    let none = Content::Blocks(Vec::new());
    let content = message.content.as_ref().unwrap_or(&none);
    if role.is("system") || role.is("developer") {
        turns.system(system_text(content)?);
    } else if role.is("assistant") {
        assistant(turns, content)?;
    } else if role.is("user") {
        user(turns, content)?;
    } else {
        return Err(bad(format!("There is no role {:?}; a message is of 'user', 'assistant' or 'system'.", role.decoded()), "messages"));
    }
    Ok(())
}

fn assistant<'a>(turns: &mut Turns<'a>, content: &Content<'a, Block<'a>>) -> Result<(), Problem> {
    let blocks = match content {
        Content::Text(text) => {
            turns.assistant(|turn| turn.text.paragraph((*text).into()));
            return Ok(());
        }
        Content::Blocks(blocks) => blocks,
    };
    for block in blocks {
        let kind = kind_of(block.kind)?;
        match &*kind {
            "text" => turns.assistant(|turn| turn.text.paragraph(block.text.map_or_else(Text::default, Text::from))),
            "thinking" => turns.assistant(|turn| turn.thinking.paragraph(block.thinking.map_or_else(Text::default, Text::from))),
            "redacted_thinking" => {}
            "tool_use" => {
                let (Some(id), Some(name)) = (block.id, block.name) else {
                    return Err(bad("A tool_use block needs 'id' and 'name'.", "messages"));
                };
                turns.call(Call { id, name, arguments: block.input.map_or_else(|| Text::plain("{}"), Text::json) });
            }
            kind if ignored::is_hosted_block(kind) => {}
            kind => return Err(unknown_block(kind)),
        }
    }
    Ok(())
}

/// Results first, whatever the order: a chat template wants them right behind their calls.
fn user<'a>(turns: &mut Turns<'a>, content: &Content<'a, Block<'a>>) -> Result<(), Problem> {
    let blocks = match content {
        Content::Text(text) => {
            turns.user(Part::Text((*text).into()));
            return Ok(());
        }
        Content::Blocks(blocks) => blocks,
    };
    for block in blocks.iter().filter(|b| b.kind.is_some_and(|kind| kind.is("tool_result"))) {
        result(turns, block)?;
    }
    for block in blocks {
        let kind = kind_of(block.kind)?;
        match &*kind {
            "text" => turns.user(Part::Text(block.text.map_or_else(Text::default, Text::from))),
            "image" => turns.user(Part::Image(image(block.source.as_ref())?)),
            "document" => turns.user(Part::Text(document(block.source.as_ref())?)),
            "tool_result" => {}
            kind if ignored::is_hosted_block(kind) => {}
            kind => return Err(unknown_block(kind)),
        }
    }
    Ok(())
}

fn result<'a>(turns: &mut Turns<'a>, block: &Block<'a>) -> Result<(), Problem> {
    let id = block.tool_use_id.ok_or_else(|| bad("A tool_result block needs 'tool_use_id'.", "messages"))?;
    let (mut text, mut images) = (Text::default(), Vec::new());
    match &block.content {
        None => {}
        Some(Content::Text(said)) => text = (*said).into(),
        Some(Content::Blocks(inner)) => {
            for part in inner {
                result_part(part, &mut text, &mut images)?;
            }
        }
    }
    if block.is_error == Some(true) {
        let mut marked = Text::plain("Error: ");
        marked.append(text);
        text = marked;
    }
    turns.result(id, text, images)
}

fn result_part<'a>(part: &ResultBlock<'a>, text: &mut Text<'a>, images: &mut Vec<Text<'a>>) -> Result<(), Problem> {
    let kind = kind_of(part.kind)?;
    match &*kind {
        "text" => text.paragraph(part.text.map_or_else(Text::default, Text::from)),
        "image" => images.push(image(part.source.as_ref())?),
        "document" => text.paragraph(document(part.source.as_ref())?),
        "tool_reference" => {
            let name = part.tool_name.ok_or_else(|| bad("A tool_reference needs 'tool_name'.", "messages"))?;
            text.paragraph(Text::plain("The tool ").quoted(name).then(" can be used now."));
        }
        kind => return Err(unknown_block(kind)),
    }
    Ok(())
}

fn image<'a>(source: Option<&Source<'a>>) -> Result<Text<'a>, Problem> {
    let source = source.ok_or_else(|| bad("An image block needs 'source'.", "messages"))?;
    match (source.kind, source.media_type, source.data, source.url) {
        (Some(kind), Some(media), Some(data), _) if kind.is("base64") => Ok(Text::plain("data:").quoted(media).then(";base64,").quoted(data)),
        (Some(kind), _, _, Some(url)) if kind.is("url") => Ok(url.into()),
        _ => Err(bad("An image must be sent as base64 with its media_type, or as a url; stored files do not exist here.", "messages")),
    }
}

fn document<'a>(source: Option<&Source<'a>>) -> Result<Text<'a>, Problem> {
    match source.map(|s| (s.kind, s.data)) {
        Some((Some(kind), Some(data))) if kind.is("text") => Ok(data.into()),
        _ => Err(bad("A document can be read as plain text only (source of type text).", "messages").hint("Send the text of the document instead.")),
    }
}

fn kind_of(kind: Option<Quoted<'_>>) -> Result<std::borrow::Cow<'_, str>, Problem> {
    kind.map(Quoted::decoded).ok_or_else(|| bad("Every content block needs a 'type'.", "messages"))
}

fn unknown_block(kind: &str) -> Problem {
    let kind: String = kind.chars().take(60).collect();
    bad(format!("A content block of type {kind:?} cannot be used here."), "messages")
        .hint("Usable are text, image, document (plain text), tool_use, tool_result and thinking.")
}

pub(super) fn bad(message: impl Into<String>, param: &str) -> Problem {
    Problem::new(ProblemKind::BadRequest, message).param(param)
}

/// The session a client names in `metadata.user_id`, which is a string with JSON in it or just a name.
pub(super) fn session(user_id: &RawValue) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct User {
        session_id: Option<String>,
    }
    let text = Quoted::of(user_id)?.decoded();
    serde_json::from_str::<User>(&text).ok().and_then(|user| user.session_id).filter(|id| !id.is_empty())
}
