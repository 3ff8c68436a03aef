//! A request of Anthropic's Messages API as it is read. Places and names are the API's own.

use serde_json::value::RawValue;

use crate::dialects::{
    content::Content,
    fields::{Leftovers, object},
    ignored,
    text::Quoted,
};

object! {
    /// The body.
    Body<'a> at "messages" {
        model: Quoted<'a> = "model",
        messages: Vec<Message<'a>> = "messages",
        system: Content<'a, Block<'a>> = "system",
        tools: Vec<Tool<'a>> = "tools",
        tool_choice: ToolChoice<'a> = "tool_choice",
        max_tokens: &'a RawValue = "max_tokens",
        stop_sequences: Vec<Quoted<'a>> = "stop_sequences",
        temperature: &'a RawValue = "temperature",
        top_p: &'a RawValue = "top_p",
        top_k: &'a RawValue = "top_k",
        thinking: Thinking<'a> = "thinking",
        output_config: OutputConfig<'a> = "output_config",
        /// The older place of `output_config.format`.
        output_format: Format<'a> = "output_format",
        metadata: Metadata<'a> = "metadata",
        stream: bool = "stream",
    }
}

object! {
    /// A turn.
    Message<'a> at "messages.message" {
        role: Quoted<'a> = "role",
        content: Content<'a, Block<'a>> = "content",
    }
}

object! {
    /// A block of content, of any type.
    Block<'a> at "messages.block" needs kind: "every content block needs a 'type'" {
        kind: Quoted<'a> = "type",
        text: Quoted<'a> = "text",
        thinking: Quoted<'a> = "thinking",
        source: Source<'a> = "source",
        id: Quoted<'a> = "id",
        name: Quoted<'a> = "name",
        input: &'a RawValue = "input",
        tool_use_id: Quoted<'a> = "tool_use_id",
        content: Content<'a, ResultBlock<'a>> = "content",
        is_error: bool = "is_error",
    }
}

object! {
    /// A block inside the result of a tool. Results hold no results, so a request cannot be deeper than this.
    ResultBlock<'a> at "messages.result_block" {
        kind: Quoted<'a> = "type",
        text: Quoted<'a> = "text",
        source: Source<'a> = "source",
        tool_name: Quoted<'a> = "tool_name",
    }
}

object! {
    /// Where an image or a document comes from.
    Source<'a> at "messages.source" {
        kind: Quoted<'a> = "type",
        media_type: Quoted<'a> = "media_type",
        data: Quoted<'a> = "data",
        url: Quoted<'a> = "url",
    }
}

object! {
    /// A tool.
    Tool<'a> at "messages.tool" {
        kind: Quoted<'a> = "type",
        name: Quoted<'a> = "name",
        description: Quoted<'a> = "description",
        input_schema: &'a RawValue = "input_schema",
        defer_loading: bool = "defer_loading",
    }
}

object! {
    /// Which tool is to be used.
    ToolChoice<'a> at "messages.tool_choice" {
        kind: Quoted<'a> = "type",
        name: Quoted<'a> = "name",
        disable_parallel_tool_use: bool = "disable_parallel_tool_use",
    }
}

object! {
    /// Whether the model is to think first.
    Thinking<'a> at "messages.thinking" {
        kind: Quoted<'a> = "type",
    }
}

object! {
    /// How the answer is to be.
    OutputConfig<'a> at "messages.output_config" {
        format: Format<'a> = "format",
    }
}

object! {
    /// The form of the answer.
    Format<'a> at "messages.format" {
        kind: Quoted<'a> = "type",
        schema: &'a RawValue = "schema",
    }
}

object! {
    /// What the client tells about its user.
    Metadata<'a> at "messages.metadata" {
        user_id: &'a RawValue = "user_id",
    }
}

impl Body<'_> {
    /// Fields that nobody read.
    pub(super) fn leftovers(&self) -> Leftovers {
        let mut left = Leftovers::default();
        left.note("messages", &self.unread);
        for message in self.messages.iter().flatten() {
            left.note("messages.message", &message.unread);
            blocks(message.content.as_ref(), &mut left);
        }
        blocks(self.system.as_ref(), &mut left);
        for tool in self.tools.iter().flatten() {
            left.note("messages.tool", &tool.unread);
            left.note_kind("messages.tool", tool.kind.filter(|_| tool.input_schema.is_none()));
        }
        let format = self.output_config.as_ref().and_then(|c| c.format.as_ref());
        left.note("messages.tool_choice", self.tool_choice.as_ref().map_or(&[], |o| &o.unread));
        left.note("messages.thinking", self.thinking.as_ref().map_or(&[], |o| &o.unread));
        left.note("messages.output_config", self.output_config.as_ref().map_or(&[], |o| &o.unread));
        left.note("messages.format", format.or(self.output_format.as_ref()).map_or(&[], |o| &o.unread));
        left.note("messages.metadata", self.metadata.as_ref().map_or(&[], |o| &o.unread));
        left
    }
}

fn blocks(content: Option<&Content<'_, Block<'_>>>, left: &mut Leftovers) {
    let Some(Content::Blocks(list)) = content else { return };
    for block in list.iter().filter(|b| !b.kind.is_some_and(|kind| ignored::is_hosted_block(&kind.decoded()))) {
        left.note("messages.block", &block.unread);
        left.note("messages.source", block.source.as_ref().map_or(&[], |s| &s.unread));
        let Some(Content::Blocks(inner)) = &block.content else { continue };
        for block in inner {
            left.note("messages.result_block", &block.unread);
            left.note("messages.source", block.source.as_ref().map_or(&[], |s| &s.unread));
        }
    }
}
