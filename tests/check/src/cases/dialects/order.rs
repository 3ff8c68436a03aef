//! What must hold of every streamed answer that ended as it should, in each dialect: nothing missing, nothing twice, everything in order.
//!
//! In: the events a client saw. Out: a sentence for everything that is wrong. Pure.

use serde_json::Value;

use super::desk::{Dialect, Told};

/// Everything that is wrong with an answer that ought to be complete.
#[must_use]
pub fn complaints(dialect: Dialect, told: &Told) -> Vec<String> {
    let mut wrong = Vec::new();
    if told.status != 200 || !told.other.is_empty() {
        wrong.push(format!("status {}, and instead of events: {}", told.status, told.other.chars().take(300).collect::<String>()));
    }
    if let Some(cause) = &told.broke {
        wrong.push(format!("the connection broke off: {cause}"));
    }
    let mut say = |sentence: String| wrong.push(sentence);
    match dialect {
        Dialect::Chat => chat(told, &mut say),
        Dialect::Messages => messages(told, &mut say),
        Dialect::Responses => responses(told, &mut say),
    }
    wrong
}

fn chat(told: &Told, say: &mut impl FnMut(String)) {
    let Some((last, chunks)) = told.events.split_last() else { return say("there is no event".to_owned()) };
    if last.data != "[DONE]" {
        say(format!("the last event is {} and not [DONE]", last.data));
    }
    let id = chunks.first().map(|c| c.data["id"].clone()).unwrap_or_default();
    let mut finished = 0;
    for chunk in chunks {
        let data = &chunk.data;
        if data["id"] != id || data["object"] != "chat.completion.chunk" || !data["choices"].is_array() || data.get("error").is_some() {
            say(format!("this is no chunk of the answer {id}: {data}"));
        }
        let choice = &data["choices"][0];
        if finished > 0 && !choice.is_null() {
            say(format!("a chunk with a choice follows the end: {data}"));
        }
        finished += usize::from(choice["finish_reason"].is_string());
    }
    if finished != 1 {
        say(format!("finish_reason is told {finished} times"));
    }
}

/// What an answer's chat finished with.
#[must_use]
pub fn finish_reason(told: &Told) -> String {
    told.events.iter().filter_map(|e| e.data["choices"][0]["finish_reason"].as_str()).next_back().unwrap_or_default().to_owned()
}

fn named(told: &Told, say: &mut impl FnMut(String)) {
    for event in &told.events {
        if event.name.is_empty() || event.data["type"] != event.name.as_str() {
            say(format!("the event {:?} holds the type {}", event.name, event.data["type"]));
        }
    }
}

fn messages(told: &Told, say: &mut impl FnMut(String)) {
    named(told, say);
    let mut next = 0;
    let mut open: Option<Value> = None;
    let mut stage = "before";
    for event in &told.events {
        let data = &event.data;
        stage = match (stage, event.name.as_str()) {
            ("before", "message_start") => {
                let message = &data["message"];
                let good = message["id"].as_str().is_some_and(|id| id.starts_with("msg_"))
                    && message["role"] == "assistant"
                    && message["content"] == Value::Array(Vec::new())
                    && message["stop_reason"].is_null()
                    && message["usage"]["output_tokens"].is_u64();
                if !good {
                    say(format!("message_start holds {message}"));
                }
                "blocks"
            }
            ("blocks", "content_block_start") => {
                if open.is_some() || data["index"] != next {
                    say(format!("a block begins out of turn: {data}"));
                }
                open = Some(data["content_block"]["type"].clone());
                "blocks"
            }
            ("blocks", "content_block_delta") => {
                let fits = match open.as_ref().and_then(Value::as_str) {
                    Some("text") => data["delta"]["type"] == "text_delta",
                    Some("thinking") => data["delta"]["type"] == "thinking_delta" || data["delta"]["type"] == "signature_delta",
                    Some("tool_use") => data["delta"]["type"] == "input_json_delta",
                    _ => false,
                };
                if !fits || data["index"] != next {
                    say(format!("a delta that fits no open block: {data}"));
                }
                "blocks"
            }
            ("blocks", "content_block_stop") => {
                if open.take().is_none() || data["index"] != next {
                    say(format!("a block ends that was not open: {data}"));
                }
                next += 1;
                "blocks"
            }
            ("blocks", "message_delta") => {
                if open.is_some() || !data["delta"]["stop_reason"].is_string() || !data["usage"]["output_tokens"].is_u64() {
                    say(format!("message_delta with an open block, or without reason and usage: {data}"));
                }
                "ending"
            }
            ("ending", "message_stop") => "ended",
            (stage, "ping") if stage != "ended" => stage,
            (stage, other) => {
                say(format!("{other} where the answer is {stage}"));
                stage
            }
        };
    }
    if stage != "ended" {
        say(format!("the answer is {stage} and not ended"));
    }
}

fn responses(told: &Told, say: &mut impl FnMut(String)) {
    named(told, say);
    let names = told.names();
    for (number, event) in told.events.iter().enumerate() {
        if event.data["sequence_number"] != number {
            say(format!("the event {number} ({}) has the number {}", event.name, event.data["sequence_number"]));
        }
    }
    if names.first() != Some(&"response.created") || names.get(1) != Some(&"response.in_progress") {
        say(format!("it begins with {:?}", names.iter().take(2).collect::<Vec<_>>()));
    }
    let count = |name: &str| names.iter().filter(|n| **n == name).count();
    if names.last() != Some(&"response.completed") || count("response.completed") != 1 || count("response.failed") + count("error") > 0 {
        say(format!("it ends with {:?}, completed {} times", names.last(), count("response.completed")));
    }
    let Some(last) = told.events.last() else { return };
    let id = &last.data["response"]["id"];
    if told.events.iter().any(|e| e.data["response"].is_object() && e.data["response"]["id"] != *id) {
        say("the response changes its id".to_owned());
    }
    if !last.data["response"]["usage"]["total_tokens"].is_u64() {
        say(format!("the usage at the end is {}", last.data["response"]["usage"]));
    }
    items(told, last.data["response"]["output"].as_array().map_or(&[], Vec::as_slice), say);
}

fn items(told: &Told, output: &[Value], say: &mut impl FnMut(String)) {
    let told_of = |name: &str| told.events.iter().filter(|e| e.name == name).map(|e| e.data["item"].clone()).collect::<Vec<_>>();
    let (added, done) = (told_of("response.output_item.added"), told_of("response.output_item.done"));
    if done != output {
        say(format!("{} items are told as done, and the end holds {}, or others", done.len(), output.len()));
    }
    let ids = |items: &[Value]| items.iter().map(|i| (i["id"].clone(), i["type"].clone())).collect::<Vec<_>>();
    if ids(&added) != ids(&done) {
        say(format!("items begin as {:?} and end as {:?}", ids(&added), ids(&done)));
    }
    let mut open: Option<u64> = None;
    for event in &told.events {
        let place = event.data["output_index"].as_u64();
        match event.name.as_str() {
            "response.output_item.added" if open.is_none() => open = place,
            "response.output_item.done" if open == place && open.is_some() => open = None,
            "response.output_item.added" | "response.output_item.done" => say(format!("an item begins or ends out of turn: {}", event.data)),
            _ if place.is_some() && place != open => say(format!("an event of an item that is not open: {}", event.data)),
            _ => {}
        }
        if let (Some(id), Some(place)) = (event.data["item_id"].as_str(), place) {
            let own = usize::try_from(place).ok().and_then(|at| output.get(at)).map(|item| item["id"].clone());
            if own != Some(Value::from(id)) {
                say(format!("the item {id} at {place} has the id {own:?} at the end"));
            }
        }
    }
    for (at, item) in output.iter().enumerate() {
        whole_item(told, at, item, say);
    }
}

/// The deltas of an item make what its end says, and each part that begins ends.
fn whole_item(told: &Told, at: usize, item: &Value, say: &mut impl FnMut(String)) {
    let own: Vec<_> = told.events.iter().filter(|e| e.data["output_index"] == at).collect();
    let joined = |name: &str| own.iter().filter(|e| e.name == name).filter_map(|e| e.data["delta"].as_str()).collect::<String>();
    let (kind, end) = match item["type"].as_str() {
        Some("message") => ("response.output_text", &item["content"][0]["text"]),
        Some("reasoning") => ("response.reasoning_summary_text", &item["summary"][0]["text"]),
        Some("function_call") => ("response.function_call_arguments", &item["arguments"]),
        Some("custom_tool_call") => ("response.custom_tool_call_input", &item["input"]),
        other => return say(format!("an item of the type {other:?}")),
    };
    if end.as_str() != Some(joined(&format!("{kind}.delta")).as_str()) {
        say(format!("the deltas of item {at} do not make its end: {end}"));
    }
    let count = |name: &str| own.iter().filter(|e| e.name == name).count();
    if count(&format!("{kind}.done")) != 1 {
        say(format!("{kind}.done of item {at} comes {} times", count(&format!("{kind}.done"))));
    }
    for part in ["response.content_part", "response.reasoning_summary_part"] {
        let (begins, ends) = (count(&format!("{part}.added")), count(&format!("{part}.done")));
        if begins != ends {
            say(format!("{part} of item {at} begins {begins} and ends {ends} times"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::desk::Event;
    use super::*;

    fn told(events: &[(&str, Value)]) -> Told {
        let events = events.iter().map(|(name, data)| Event { name: (*name).to_owned(), data: data.clone() }).collect();
        Told { status: 200, events, ..Told::default() }
    }

    fn message() -> Vec<(&'static str, Value)> {
        vec![
            (
                "message_start",
                json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant", "content": [], "usage": {"output_tokens": 0}}}),
            ),
            ("content_block_start", json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}})),
            ("content_block_delta", json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}})),
            ("content_block_stop", json!({"type": "content_block_stop", "index": 0})),
            ("message_delta", json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}})),
            ("message_stop", json!({"type": "message_stop"})),
        ]
    }

    #[test]
    fn a_message_without_any_one_of_its_events_is_not_complete() {
        assert_eq!(complaints(Dialect::Messages, &told(&message())), Vec::<String>::new());
        for missing in [0, 1, 3, 4, 5] {
            let mut events = message();
            events.remove(missing);
            assert!(!complaints(Dialect::Messages, &told(&events)).is_empty(), "without event {missing}");
        }
        let mut broken = told(&message());
        broken.broke = Some("reset".to_owned());
        assert!(!complaints(Dialect::Messages, &broken).is_empty());
    }

    #[test]
    fn a_chat_stream_has_one_end_and_nothing_behind_it() {
        let chunk = |delta: Value, finish: Value| {
            ("", json!({"id": "a", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
        };
        let good = vec![chunk(json!({"content": "x"}), Value::Null), chunk(json!({}), json!("stop")), ("", json!("[DONE]"))];
        assert_eq!(complaints(Dialect::Chat, &told(&good)), Vec::<String>::new());
        assert_eq!(finish_reason(&told(&good)), "stop");
        for bad in
            [vec![good[0].clone(), good[2].clone()], vec![good[0].clone(), good[1].clone()], vec![good[1].clone(), good[0].clone(), good[2].clone()]]
        {
            assert!(!complaints(Dialect::Chat, &told(&bad)).is_empty(), "{bad:?}");
        }
    }

    #[test]
    fn a_response_must_be_completed_and_keep_its_ids() {
        let item = |id: &str, text: Option<&str>| {
            let content = text.map_or_else(Vec::new, |t| vec![json!({"text": t})]);
            json!({"id": id, "type": "message", "content": content})
        };
        let good = |id: &str| {
            let list = [
                ("response.created", json!({"response": {"id": "r"}})),
                ("response.in_progress", json!({"response": {"id": "r"}})),
                ("response.output_item.added", json!({"output_index": 0, "item": item(id, None)})),
                ("response.output_text.delta", json!({"output_index": 0, "item_id": "m", "delta": "x"})),
                ("response.output_text.done", json!({"output_index": 0, "item_id": "m"})),
                ("response.output_item.done", json!({"output_index": 0, "item": item("m", Some("x"))})),
                ("response.completed", json!({"response": {"id": "r", "output": [item("m", Some("x"))], "usage": {"total_tokens": 3}}})),
            ];
            list.into_iter()
                .enumerate()
                .map(|(number, (name, mut data))| {
                    data["type"] = name.into();
                    data["sequence_number"] = number.into();
                    (name, data)
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(complaints(Dialect::Responses, &told(&good("m"))), Vec::<String>::new());
        assert!(!complaints(Dialect::Responses, &told(&good("n"))).is_empty(), "another id at the start");
        for missing in 0..7 {
            let mut events = good("m");
            events.remove(missing);
            assert!(!complaints(Dialect::Responses, &told(&events)).is_empty(), "without event {missing}");
        }
    }
}
