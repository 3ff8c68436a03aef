//! The one list of request fields that are known and left out on purpose. A field that is neither used nor here is reported. It is public, so
//! that recorded requests can be held against it.
//!
//! One row per place.

/// Place in a request, and the fields of it that are left out.
const IGNORED: &[(&str, &[&str])] = &[
    // Caching is the engine's and the scheduler's own; marks move between turns.
    (
        "messages",
        &[
            "cache_control",
            "context_management",
            "safeguards",
            "service_tier",
            "inference_geo",
            "container",
            "mcp_servers",
            "betas",
            "speed",
            "diagnostics",
            "user_profile_id",
            "fallbacks",
        ],
    ),
    // Effort on a message is a hint to Anthropic's models; `output_config` on a message carries nothing else.
    (
        "messages.message",
        &[
            "output_config",
            "id",
            "type",
            "model",
            "stop_reason",
            "stop_sequence",
            "usage",
            "container",
            "context_management",
            "stop_details",
            "diagnostics",
        ],
    ),
    // A signature proves thinking to its maker; ours is made here and proves nothing.
    ("messages.block", &["cache_control", "signature", "data", "citations", "caller", "title", "context"]),
    ("messages.result_block", &["cache_control", "citations", "title", "context", "page_age", "encrypted_content"]),
    (
        "messages.tool",
        &[
            "cache_control",
            "eager_input_streaming",
            "strict",
            "allowed_callers",
            "input_examples",
            "max_uses",
            "max_content_tokens",
            "allowed_domains",
            "blocked_domains",
            "user_location",
            "citations",
            "response_inclusion",
            "use_cache",
            "display_width_px",
            "display_height_px",
            "display_number",
            "enable_zoom",
            "max_characters",
            "model",
            "caching",
            "mcp_server_name",
            "default_config",
            "configs",
        ],
    ),
    // How long, and whether shown as text: a local model's thinking goes out whole, so that it can come back.
    ("messages.thinking", &["budget_tokens", "display"]),
    ("messages.output_config", &["effort", "task_budget"]),
    ("messages.format", &["name", "strict", "description"]),
    (
        "responses",
        &[
            "store",
            "user",
            "client_metadata",
            "safety_identifier",
            "service_tier",
            "truncation",
            "stream_options",
            "context_management",
            "prompt_cache_retention",
            "max_tool_calls",
            "top_logprobs",
            "moderation",
        ],
    ),
    // A namespace is the group of a tool, and the model knows the tool by its own name.
    (
        "responses.item",
        &[
            "namespace",
            "id",
            "status",
            "phase",
            "internal_chat_message_metadata_passthrough",
            "encrypted_content",
            "acknowledged_safety_checks",
            "created_by",
            "action",
            "end_turn",
            "metadata",
        ],
    ),
    ("responses.part", &["annotations", "logprobs", "detail", "prompt_cache_breakpoint"]),
    (
        "responses.tool",
        &[
            "strict",
            "defer_loading",
            "output_format",
            "external_web_access",
            "search_content_types",
            "execution",
            "user_location",
            "search_context_size",
            "filters",
            "output_schema",
            "allowed_callers",
            "indexed_web_access",
        ],
    ),
    // Values of `include`: traces of tools that a provider runs, and what engines here do not tell.
    (
        "responses.include",
        &[
            "web_search_call.action.sources",
            "web_search_call.results",
            "file_search_call.results",
            "code_interpreter_call.outputs",
            "computer_call_output.output.image_url",
            "message.input_image.image_url",
            "message.output_text.logprobs",
        ],
    ),
    ("responses.tool_choice", &["type", "tools"]),
    ("responses.reasoning", &["summary", "generate_summary", "context", "mode"]),
    ("responses.text", &["verbosity"]),
    ("responses.format", &["description"]),
];

/// Whether a field is left out on purpose at this place.
#[must_use]
pub fn is_ignored(place: &str, field: &str) -> bool {
    IGNORED.iter().any(|(at, fields)| *at == place && fields.contains(&field))
}

/// Tools that a provider runs itself: there is nobody here to run them, so the model is not told of them. A trailing `*` matches any
/// version.
const HOSTED_TOOLS: &[&str] = &[
    "web_search*",
    "web_fetch*",
    "code_execution*",
    "computer*",
    "text_editor*",
    "bash_*",
    "memory_*",
    "tool_search*",
    "mcp_toolset",
    "advisor*",
    "image_generation",
    "file_search",
    "code_interpreter",
    "mcp",
    "local_shell",
    "shell",
    "apply_patch",
    "programmatic_tool_calling",
];

/// Whether a kind of tool is run by its provider.
#[must_use]
pub fn is_hosted_tool(kind: &str) -> bool {
    HOSTED_TOOLS.iter().any(|known| known.strip_suffix('*').map_or(*known == kind, |stem| kind.starts_with(stem)))
}

/// Blocks of tools that a provider ran itself, in conversations that began elsewhere.
const HOSTED_BLOCKS: &[&str] = &[
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
    "container_upload",
    "advisor_tool_result",
    "fallback",
    "compaction",
];

/// Whether a block is the trace of a tool that its provider ran.
#[must_use]
pub fn is_hosted_block(kind: &str) -> bool {
    HOSTED_BLOCKS.contains(&kind)
}

/// Items of tools that a provider ran itself, in conversations that began elsewhere.
const HOSTED_ITEMS: &[&str] = &[
    "web_search_call",
    "file_search_call",
    "image_generation_call",
    "code_interpreter_call",
    "mcp_list_tools",
    "mcp_call",
    "mcp_approval_request",
    "mcp_approval_response",
    "tool_search_call",
    "tool_search_output",
];

/// Whether an item is the trace of a tool that its provider ran.
#[must_use]
pub fn is_hosted_item(kind: &str) -> bool {
    HOSTED_ITEMS.contains(&kind)
}
