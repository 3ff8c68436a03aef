//! `structured` and `images`: the form of answers, and what is no text.

use serde_json::{Value, json};

use super::super::super::named;
use super::super::desk::{Behind, Desk, Dialect};
use super::{WINDOW, answered};
use crate::console::short;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

/// A picture of one point.
const DOT: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// The text of a whole answer.
fn text(dialect: Dialect, answer: &Value) -> String {
    let said = match dialect {
        Dialect::Chat => &answer["choices"][0]["message"]["content"],
        Dialect::Messages => &answer["content"][0]["text"],
        Dialect::Responses => &answer["output"][0]["content"][0]["text"],
    };
    said.as_str().unwrap_or_default().to_owned()
}

/// Answers in a form: the genuine engine can then write nothing else.
pub fn structured(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named::run(stage, task, result, &["-p", "warden-gateway", "--test", "dialects", "settings_arrive_under"], 1)?;
    let desk = Desk::start(stage, task, None, Behind::Genuine, WINDOW, "")?;
    let schema = json!({"type": "object", "properties": {"open": {"type": "boolean"}, "kind": {"enum": ["sea", "land"]}, "count": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["open", "kind", "count"], "additionalProperties": false});
    for dialect in Dialect::ALL {
        for streamed in [false, true] {
            let mut body = dialect.question("What is it?", streamed);
            match dialect {
                Dialect::Chat => {
                    body["response_format"] = json!({"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": true}})
                }
                Dialect::Messages => body["output_config"] = json!({"format": {"type": "json_schema", "schema": schema}}),
                Dialect::Responses => body["text"] = json!({"format": {"type": "json_schema", "name": "place", "strict": true, "schema": schema}}),
            }
            let said = if streamed {
                let told = desk.listen(dialect.path(), body.to_string().as_bytes())?;
                let piece = |e: &super::super::desk::Event| {
                    let data = &e.data;
                    let place = [&data["choices"][0]["delta"]["content"], &data["delta"]["text"]];
                    let of_response = (e.name == "response.output_text.delta").then_some(&data["delta"]);
                    place.into_iter().chain(of_response).find_map(|v| v.as_str().map(str::to_owned))
                };
                told.events.iter().filter_map(piece).collect()
            } else {
                text(dialect, &answered(&desk, dialect.path(), &body)?)
            };
            let read: Value = serde_json::from_str(&said).unwrap_or_default();
            let good =
                read["open"].is_boolean() && ["sea", "land"].iter().any(|k| read["kind"] == *k) && read["count"].as_u64().is_some_and(|n| n < 10);
            let exact = read.as_object().is_some_and(|o| o.len() == 3);
            result.expect(good && exact, format!("{dialect:?}, streamed: {streamed}: the answer has the form asked for: {said:?}"));
        }
    }
    // Any JSON, and forms that are none.
    let mut any = Dialect::Responses.question("What is it?", false);
    any["text"] = json!({"format": {"type": "json_object"}});
    any["max_output_tokens"] = json!(400);
    let answer = answered(&desk, "/v1/responses", &any)?;
    let said = text(Dialect::Responses, &answer);
    let good = answer["status"] == "incomplete" || serde_json::from_str::<Value>(&said).is_ok();
    result.expect(said.trim_start().starts_with('{') && good, format!("json_object: the answer is one, as far as it goes: {said:?}"));
    for (dialect, field, value) in [
        (Dialect::Messages, "output_config", json!({"format": {"type": "xml"}})),
        (Dialect::Responses, "text", json!({"format": {"type": "json_schema", "name": "n"}})),
    ] {
        let mut body = dialect.question("What is it?", true);
        body[field] = value;
        let reply = desk.ask(dialect.path(), body.to_string().as_bytes())?;
        let named = reply.text().contains(&format!("{field}.format"));
        result
            .expect(reply.status == 400 && named, format!("{dialect:?}: a form that is none is refused by name: {} {}", reply.status, short(&reply)));
    }
    desk.end(result)
}

/// Pictures wherever clients put them, to a model that reads text only.
pub fn images(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    named::run(
        stage,
        task,
        result,
        &[
            "-p",
            "warden-gateway",
            "--test",
            "dialects",
            "an_image_for_a_model_without_eyes",
            "results_follow_their_calls",
            "an_image_where_none_can_be",
        ],
        3,
    )?;
    let url = format!("data:image/png;base64,{DOT}");
    let block = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DOT}});
    let part = json!({"type": "input_image", "detail": "auto", "image_url": url});
    let mut message = Dialect::Messages.question("", false);
    message["messages"] = json!([{"role": "user", "content": [block, {"type": "text", "text": "What is this?"}]}]);
    let mut in_result = Dialect::Messages.question("", false);
    in_result["messages"] = json!([{"role": "user", "content": "Look."}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [block]}, {"type": "text", "text": "Well?"}]}]);
    let mut item = Dialect::Responses.question("", false);
    item["input"] = json!([{"role": "user", "content": [part, {"type": "input_text", "text": "What is this?"}]}]);
    let mut output = Dialect::Responses.question("", false);
    output["input"] = json!([{"role": "user", "content": "Look."}, {"type": "function_call", "call_id": "t1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "t1", "output": [{"type": "input_text", "text": "Here."}, part]}]);
    let places = [
        ("a message", Dialect::Messages, message),
        ("the result of a tool", Dialect::Messages, in_result),
        ("an item", Dialect::Responses, item),
        ("the output of a function", Dialect::Responses, output),
    ];
    let mut chat = Dialect::Chat.question("", false);
    chat["messages"] =
        json!([{"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]}]);
    for behind in [Behind::Scripted, Behind::Genuine] {
        let desk = Desk::start(stage, task, None, behind, WINDOW, "")?;
        for (what, dialect, body) in &places {
            let reply = desk.ask(dialect.path(), body.to_string().as_bytes())?;
            result.expect(reply.status == 200, format!("{behind:?}: a picture in {what} is answered: {} {}", reply.status, short(&reply)));
            if behind == Behind::Scripted {
                let asked = desk.reached()?;
                let kept = asked.contains("reads text only") && !asked.contains(DOT);
                let wrong =
                    serde_json::from_str(&asked).map_or_else(|e| vec![e.to_string()], |chat: Value| warden_fixtures::strict::complaints(&chat));
                result.expect(
                    kept && wrong.is_empty(),
                    format!("in {what} the model is told that a picture was there, and nothing is lost unseen {wrong:?}"),
                );
            }
        }
        if behind == Behind::Genuine {
            let reply = desk.ask(Dialect::Chat.path(), chat.to_string().as_bytes())?;
            // The engine itself would refuse it; the sentence in its place lets the conversation go on.
            let answered = reply.status == 200 && reply.json()["choices"][0]["finish_reason"].is_string();
            result.expect(answered, format!("a picture in a chat request is answered too: {} {}", reply.status, short(&reply)));
        }
        desk.end(result)?;
    }
    Ok(())
}
