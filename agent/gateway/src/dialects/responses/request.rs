//! A request of OpenAI's Responses API as it is read. Places and names are the API's own.

use serde_json::value::RawValue;

use crate::dialects::{
    content::Content,
    fields::{Leftovers, object},
    ignored,
    lists::Room,
    text::Quoted,
};

/// What a client includes to get the part of the thinking that it is to send back.
pub(super) const SEALED: &str = "reasoning.encrypted_content";

object! {
    /// The body.
    Body<'a> at "responses" {
        model: Quoted<'a> = "model",
        input: Content<'a, Item<'a>> = "input",
        instructions: Content<'a, Item<'a>> = "instructions",
        tools: Vec<Tool<'a>> = "tools",
        tool_choice: &'a RawValue = "tool_choice",
        parallel_tool_calls: bool = "parallel_tool_calls",
        max_output_tokens: &'a RawValue = "max_output_tokens",
        temperature: &'a RawValue = "temperature",
        top_p: &'a RawValue = "top_p",
        reasoning: Reasoning<'a> = "reasoning",
        text: TextConfig<'a> = "text",
        include: Vec<Quoted<'a>> = "include",
        metadata: &'a RawValue = "metadata",
        prompt_cache_key: Quoted<'a> = "prompt_cache_key",
        stream: bool = "stream",
        previous_response_id: Quoted<'a> = "previous_response_id",
        conversation: &'a RawValue = "conversation",
        background: bool = "background",
        prompt: &'a RawValue = "prompt",
    }
}

object! {
    /// A thing in the input, of any type.
    Item<'a> at "responses.item" {
        kind: Quoted<'a> = "type",
        role: Quoted<'a> = "role",
        content: Content<'a, Part<'a>> = "content",
        summary: Vec<Part<'a>> = "summary",
        name: Quoted<'a> = "name",
        arguments: Quoted<'a> = "arguments",
        input: Quoted<'a> = "input",
        call_id: Quoted<'a> = "call_id",
        output: Content<'a, Part<'a>> = "output",
    }
}

object! {
    /// A part of an item's content.
    Part<'a> at "responses.part" {
        kind: Quoted<'a> = "type",
        text: Quoted<'a> = "text",
        refusal: Quoted<'a> = "refusal",
        image_url: Quoted<'a> = "image_url",
    }
}

object! {
    /// A tool, or a group of them.
    Tool<'a> at "responses.tool" {
        kind: Quoted<'a> = "type",
        name: Quoted<'a> = "name",
        description: Quoted<'a> = "description",
        parameters: &'a RawValue = "parameters",
        format: Grammar<'a> = "format",
        tools: Vec<Member<'a>> = "tools",
    }
}

object! {
    /// A tool inside a group.
    Member<'a> at "responses.tool" {
        kind: Quoted<'a> = "type",
        name: Quoted<'a> = "name",
        description: Quoted<'a> = "description",
        parameters: &'a RawValue = "parameters",
        format: Grammar<'a> = "format",
    }
}

object! {
    /// What the free text of a tool must look like.
    Grammar<'a> at "responses.grammar" {
        kind: Quoted<'a> = "type",
        syntax: Quoted<'a> = "syntax",
        definition: Quoted<'a> = "definition",
    }
}

object! {
    /// Which tool is to be used, when it is an object.
    ToolChoice<'a> at "responses.tool_choice" {
        name: Quoted<'a> = "name",
        mode: Quoted<'a> = "mode",
    }
}

object! {
    /// How the model is to think.
    Reasoning<'a> at "responses.reasoning" {
        effort: Quoted<'a> = "effort",
    }
}

object! {
    /// How the answer is to be.
    TextConfig<'a> at "responses.text" {
        format: Format<'a> = "format",
    }
}

object! {
    /// The form of the answer.
    Format<'a> at "responses.format" {
        kind: Quoted<'a> = "type",
        name: Quoted<'a> = "name",
        schema: &'a RawValue = "schema",
        strict: bool = "strict",
    }
}

impl<'a> Body<'a> {
    /// Fields that nobody read.
    pub(super) fn leftovers(&self) -> Leftovers {
        let mut left = Leftovers::default();
        left.note("responses", &self.unread);
        for content in [&self.instructions, &self.input].into_iter().flatten() {
            let Content::Blocks(items) = content else { continue };
            for item in items {
                left.note("responses.item", &item.unread);
                parts(item.content.as_ref(), &mut left);
                parts(item.output.as_ref(), &mut left);
                item.summary.iter().flatten().for_each(|part| left.note("responses.part", &part.unread));
            }
        }
        for tool in self.tools.iter().flatten() {
            left.note("responses.tool", &tool.unread);
            left.note("responses.grammar", tool.format.as_ref().map_or(&[], |f| &f.unread));
            left.note_kind("responses.tool", tool.kind.filter(|kind| !["function", "custom", "namespace"].iter().any(|known| kind.is(known))));
            for member in tool.tools.iter().flatten() {
                left.note("responses.tool", &member.unread);
                left.note_kind("responses.tool", member.kind.filter(|kind| !["function", "custom"].iter().any(|known| kind.is(known))));
            }
        }
        for wish in self.include.iter().flatten().map(|wish| wish.decoded()) {
            if wish != SEALED && !ignored::is_ignored("responses.include", &wish) {
                left.note("responses.include", &[wish]);
            }
        }
        left.note("responses.reasoning", self.reasoning.as_ref().map_or(&[], |o| &o.unread));
        left.note("responses.text", self.text.as_ref().map_or(&[], |o| &o.unread));
        left.note("responses.format", self.text.as_ref().and_then(|t| t.format.as_ref()).map_or(&[], |o| &o.unread));
        if let Some(choice) = self.choice_object() {
            left.note("responses.tool_choice", &choice.unread);
        }
        left
    }

    /// `tool_choice` when it is an object.
    pub(super) fn choice_object(&self) -> Option<ToolChoice<'a>> {
        Room::default().read(self.tool_choice?.get()).ok()
    }
}

fn parts(content: Option<&Content<'_, Part<'_>>>, left: &mut Leftovers) {
    if let Some(Content::Blocks(list)) = content {
        list.iter().for_each(|part| left.note("responses.part", &part.unread));
    }
}
