//! Round trips and the rules of translation, one by one.

use serde_json::{Value, json};
use warden_domain::{ProblemKind, engine::EngineKind};
use warden_gateway::dialects::{Target, messages::MessagesRequest, responses::ResponsesRequest};

use super::fixtures::{TARGET, chat_of};

fn chat(dialect: &str, body: &Value) -> Value {
    serde_json::from_slice(&chat_of(dialect, body.to_string().as_bytes()).0).unwrap()
}

fn refused(dialect: &str, body: &Value) -> (String, Option<String>) {
    let text = body.to_string();
    let problem = match dialect {
        "messages" => MessagesRequest::read(text.as_bytes()).and_then(|r| r.chat(&TARGET)),
        _ => ResponsesRequest::read(text.as_bytes()).and_then(|r| r.chat(&TARGET)),
    }
    .unwrap_err();
    assert_eq!(problem.kind, ProblemKind::BadRequest);
    (problem.full_text(), problem.param)
}

/// A Messages request with these messages.
fn messages(list: &Value) -> Value {
    chat("messages", &json!({"model": "m", "max_tokens": 100, "messages": list}))["messages"].clone()
}

/// A whole answer of an engine as this request's client gets it.
fn answered(dialect: &str, request: &Value, message: &Value, finish: &str) -> Value {
    let text = request.to_string();
    let engine = json!({"choices": [{"index": 0, "message": message, "finish_reason": finish}], "model": "tiny",
        "usage": {"prompt_tokens": 30, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 20}}})
    .to_string();
    let body = match dialect {
        "messages" => MessagesRequest::read(text.as_bytes()).unwrap().plan("req_9").whole(engine.as_bytes()).unwrap().0,
        _ => ResponsesRequest::read(text.as_bytes()).unwrap().plan("req_9", 5).unwrap().whole(engine.as_bytes()).unwrap().0,
    };
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn results_follow_their_calls_with_errors_marked_and_images_behind() {
    let got = messages(&json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking", "data": "x"},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": "é\n"}}, {"type": "tool_use", "id": "b", "name": "g", "input": {}}]},
        {"role": "system", "content": "note"},
        {"role": "user", "content": [{"type": "text", "text": "first"},
            {"type": "tool_result", "tool_use_id": "a", "is_error": true, "content": [{"type": "text", "text": "no"}]},
            {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}}]}]},
    ]));
    assert_eq!(
        got,
        json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":\"é\\n\"}"}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "Error: no"},
            {"role": "tool", "tool_call_id": "b", "content": "The result is an image; it follows."},
            {"role": "user", "content": [
                {"type": "text", "text": "[System message]\nnote\n[End of system message]\n\n[Image in the result of tool call b]"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}},
                {"type": "text", "text": "first"}]},
        ])
    );
}

#[test]
fn an_image_for_a_model_without_eyes_is_a_sentence() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}, {"type": "text", "text": "what?"}]}]});
    let blind = Target { images: Some(false), engine: EngineKind::LlamaCpp, ..TARGET };
    let text = body.to_string();
    let chat: Value = serde_json::from_slice(&MessagesRequest::read(text.as_bytes()).unwrap().chat(&blind).unwrap()).unwrap();
    let said = chat["messages"][0]["content"].as_str().unwrap();
    assert!(said.contains("reads text only") && said.ends_with("what?"), "{said}");
}

/// It used to be left out without a word.
#[test]
fn an_image_where_none_can_be_is_refused_and_not_left_out() {
    for role in ["developer", "system", "assistant"] {
        let content = json!([{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:image/png;base64,aa"}]);
        let (text, param) =
            refused("responses", &json!({"model": "m", "input": [{"role": role, "content": content}, {"role": "user", "content": "x"}]}));
        assert!(text.contains(role) && text.contains("image"), "{text}");
        assert_eq!(param.as_deref(), Some("input"));
    }
}

#[test]
fn settings_arrive_under_the_names_engines_know() {
    let got = chat(
        "messages",
        &json!({"model": "m", "max_tokens": 500, "stop_sequences": ["END"], "temperature": 0.5, "top_p": 1, "top_k": 40, "stream": true,
            "thinking": {"type": "enabled", "budget_tokens": -1}, "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": {"a": 1}}},
            "messages": [{"role": "user", "content": "x"}]}),
    );
    assert_eq!(
        got,
        json!({"model": "tiny", "messages": [{"role": "user", "content": "x"}],
            "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
            "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 500, "stop": ["END"], "temperature": 0.5, "top_p": 1, "top_k": 40,
            "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"a": 1}, "strict": true}},
            "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}})
    );
    let quiet = chat(
        "messages",
        &json!({"model": "m", "max_tokens": 128_000, "tools": [], "tool_choice": {"type": "auto"}, "messages": [{"role": "user", "content": "x"}]}),
    );
    assert_eq!(quiet, json!({"model": "tiny", "messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"enable_thinking": false}}));
}

#[test]
fn tools_that_a_provider_runs_are_left_out_and_a_choice_of_one_with_them() {
    let searching = json!({"model": "m", "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
        "tool_choice": {"type": "tool", "name": "web_search"}, "messages": [{"role": "user", "content": "find x"}]});
    let got = chat("messages", &searching);
    assert!(got["messages"][0]["content"].as_str().unwrap().contains("No web search is available"));
    assert!(got.get("tools").is_none() && got.get("tool_choice").is_none());
    let beside = json!({"model": "m", "tools": [{"type": "web_search_20250305", "name": "web_search"}, {"name": "f", "input_schema": {}}],
        "tool_choice": {"type": "tool", "name": "web_search"}, "messages": [{"role": "user", "content": "x"}]});
    let got = chat("messages", &beside);
    assert_eq!((got["messages"].as_array().unwrap().len(), &got["tool_choice"]), (1, &json!("auto")));
}

#[test]
fn what_cannot_be_used_is_refused_with_the_field_and_a_way_out() {
    let user = json!([{"role": "user", "content": "x"}]);
    for (body, param, words) in [
        (json!({"model": "m", "messages": []}), None, "no message"),
        (json!({"model": "m", "max_tokens": 0, "messages": user}), Some("max_tokens"), "above 0"),
        (json!({"model": "m", "temperature": "hot", "messages": user}), Some("temperature"), "number"),
        (json!({"messages": user}), Some("model"), "no model"),
        (json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "video"}]}]}), Some("messages"), "\"video\""),
        (
            json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "q", "content": "x"}]}]}),
            None,
            "\"q\"",
        ),
        (json!({"model": "m", "messages": [{"role": "king", "content": "x"}]}), Some("messages"), "\"king\""),
    ] {
        let (text, field) = refused("messages", &body);
        assert!(text.contains(words), "{text}");
        assert_eq!(field.as_deref(), param, "{text}");
    }
    for (body, param) in [
        (json!({"model": "m", "input": "x", "previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"model": "m", "input": "x", "conversation": {"id": "c"}}), "conversation"),
        (json!({"model": "m", "input": "x", "background": true}), "background"),
        (json!({"model": "m"}), "input"),
        (json!({"model": "m", "input": [{"type": "item_reference", "id": "i"}]}), "input"),
        (json!({"model": "m", "input": "x", "tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "f"}]}), "tools"),
    ] {
        assert_eq!(refused("responses", &body).1.as_deref(), Some(param), "{body}");
    }
    assert!(
        refused("responses", &json!({"model": "m", "input": [{"type": "function_call_output", "call_id": "z", "output": "x"}]})).0.contains("\"z\"")
    );
    assert!(MessagesRequest::read(b"{\"model\":\"\xff\"}").is_err());
    let deep =
        format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":{}{}}}]}}", "[{\"content\":".repeat(100_000), "}]".repeat(100_000));
    assert!(MessagesRequest::read(deep.as_bytes()).is_err(), "depth is bounded");
}

#[test]
fn a_call_of_a_grouped_tool_goes_out_with_its_group_and_comes_back_without() {
    let tools = json!([{"type": "function", "name": "f"}, {"type": "namespace", "name": "agents", "tools": [
        {"type": "function", "name": "close", "parameters": {"type": "object"}}, {"type": "function", "name": "f"}]}]);
    let request = json!({"model": "m", "input": "x", "tools": tools});
    let offered: Vec<Value> = chat("responses", &request)["tools"].as_array().unwrap().iter().map(|t| t["function"]["name"].clone()).collect();
    assert_eq!(offered, ["f", "close"], "a member whose name is taken is left out");
    let call = json!({"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "close", "arguments": "{\"target\": \"y\"}"}}]});
    let item = answered("responses", &request, &call, "tool_calls")["output"][0].clone();
    assert_eq!(
        item,
        json!({"id": "fc_9_0", "type": "function_call", "status": "completed", "call_id": "c1", "name": "close", "namespace": "agents", "arguments": "{\"target\": \"y\"}"})
    );
    let history = json!({"model": "m", "tools": tools, "input": [{"role": "user", "content": "x"}, item, {"type": "function_call_output", "call_id": "c1", "output": "done"}]});
    let rendered = chat("responses", &history)["messages"].clone();
    assert_eq!(rendered[1]["tool_calls"], call["tool_calls"], "the model sees its own call again");
    assert_eq!(rendered[2], json!({"role": "tool", "tool_call_id": "c1", "content": "done"}));
}

#[test]
fn free_text_of_a_custom_tool_goes_both_ways_byte_for_byte() {
    let tools = json!([{"type": "custom", "name": "apply_patch", "description": "Edit.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\"\n"}}]);
    let request = json!({"model": "m", "input": "x", "tools": tools});
    let function = chat("responses", &request)["tools"][0]["function"].clone();
    assert!(function["description"].as_str().unwrap().ends_with("(lark):\nstart: \"x\"\n"));
    assert_eq!(function["parameters"]["required"], json!(["input"]));
    for patch in ["*** Begin\n+\t\"é\" \\ 🦙\r\n*** End\n", "", "{\"input\": 1}"] {
        let arguments = json!({"input": patch}).to_string();
        let call = json!({"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "apply_patch", "arguments": arguments}}]});
        let item = answered("responses", &request, &call, "tool_calls")["output"][0].clone();
        assert_eq!((&item["type"], &item["input"]), (&json!("custom_tool_call"), &json!(patch)));
        let history = json!({"model": "m", "tools": tools, "input": [item, {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "ok"}]}]});
        assert_eq!(chat("responses", &history)["messages"][0]["tool_calls"], call["tool_calls"]);
    }
    let bare = json!({"tool_calls": [{"function": {"name": "apply_patch", "arguments": "*** Begin"}}]});
    assert_eq!(answered("responses", &request, &bare, "stop")["output"][0]["input"], "*** Begin", "a model that wrote no JSON meant the text itself");
}

#[test]
fn a_whole_answer_holds_thinking_text_calls_reason_and_true_usage() {
    let message = json!({"content": "Hi", "reasoning_content": "hm", "tool_calls": [
        {"id": "a", "function": {"name": "f", "arguments": "{\"x\": 1}"}}, {"id": "b", "function": {"name": "g", "arguments": "{\"x\": "}}]});
    let request = json!({"model": "asked", "thinking": {"type": "adaptive"}, "messages": [{"role": "user", "content": "x"}]});
    assert_eq!(
        answered("messages", &request, &message, "stop"),
        json!({"id": "msg_9", "type": "message", "role": "assistant", "model": "asked", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "bG9jYWw="}, {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}, {"type": "tool_use", "id": "b", "name": "g", "input": {}}],
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {"input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 20, "output_tokens": 7}})
    );
    let got = answered("responses", &json!({"model": "asked", "input": "x"}), &message, "length");
    assert_eq!(
        (&got["status"], &got["incomplete_details"]["reason"], &got["model"]),
        (&json!("incomplete"), &json!("max_output_tokens"), &json!("asked"))
    );
    assert_eq!(got["output"].as_array().unwrap().len(), 3, "thinking that nobody asked for is not told");
    assert_eq!(got["output"][2]["arguments"], "{\"x\": ", "what the model wrote, also when it was cut");
    assert_eq!(got["usage"]["total_tokens"], 37);
    assert_eq!(got["usage"]["input_tokens_details"]["cached_tokens"], 20);
}

#[test]
fn the_length_of_a_prompt_is_asked_without_what_concerns_the_answer() {
    let body = br#"{"model":"m","messages":[{"role":"user","content":"foo"}],"tools":[{"name":"f","input_schema":{}}],"stream":true,"max_tokens":5}"#;
    let count: Value = serde_json::from_slice(&MessagesRequest::read(body).unwrap().count(&TARGET).unwrap()).unwrap();
    let names: Vec<&String> = count.as_object().unwrap().keys().collect();
    assert_eq!(names, ["chat_template_kwargs", "messages", "model", "tools"]);
    use warden_gateway::dialects::messages::{counted, read_count};
    assert_eq!((read_count(b"{\"input_tokens\":7}"), read_count(b"{\"count\":8,\"max_model_len\":9}"), read_count(b"{}")), (Some(7), Some(8), None));
    assert_eq!(counted(7), b"{\"input_tokens\":7}");
}

#[test]
fn a_session_is_found_where_each_client_puts_it() {
    let session = |user: &str| MessagesRequest::read(json!({"model": "m", "metadata": {"user_id": user}}).to_string().as_bytes()).unwrap().session();
    assert_eq!(session(r#"{"session_id":"s1","device_id":"d"}"#).as_deref(), Some("s1"));
    assert_eq!(session("just a name"), None);
    let text = json!({"model": "m", "input": "x", "prompt_cache_key": "k"}).to_string();
    assert_eq!(ResponsesRequest::read(text.as_bytes()).unwrap().session().as_deref(), Some("k"));
}
