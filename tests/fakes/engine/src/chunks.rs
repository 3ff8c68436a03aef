//! What llama.cpp's chat and completion calls answer, made of a script's short form. Pure.

use serde_json::{Map, Value, json};
use warden_fake_engine::script::{Chat, Part, Script, Step, Used};

/// What of a request matters for the form of its answer.
#[derive(Clone, Debug)]
pub struct Form {
    /// `/v1/completions`: texts instead of messages.
    pub plain: bool,
    /// The model's name as asked for.
    pub model: String,
    /// A stream ends with figures.
    pub usage: bool,
    /// Tokens of the prompt, reckoned.
    pub prompt: u64,
}

/// What one step brings: pieces of a stream, one event each.
pub struct Pieces(pub Vec<String>);

/// An event of a stream.
pub fn event(document: &Value) -> String {
    format!("data: {document}\n\n")
}

impl Form {
    fn chunk(&self, delta: &Value, finish: Option<&str>) -> Value {
        let choice = if self.plain {
            json!({"index": 0, "text": delta["content"].as_str().unwrap_or_default(), "finish_reason": finish, "logprobs": null})
        } else {
            json!({"index": 0, "delta": delta, "finish_reason": finish})
        };
        json!({"choices": [choice], "created": 1_700_000_000, "id": "chatcmpl-scripted", "model": self.model, "system_fingerprint": "b11434-scripted",
            "object": if self.plain { "text_completion" } else { "chat.completion.chunk" }})
    }

    /// The chunk that tells the role.
    pub fn opening(&self) -> Option<String> {
        (!self.plain).then(|| event(&self.chunk(&json!({"role": "assistant", "content": null}), None)))
    }

    /// What a part says; silence and ends are the caller's.
    pub fn pieces(&self, step: &Step) -> Pieces {
        let deltas = [
            step.reason.as_ref().map(|text| json!({"reasoning_content": text})),
            step.text.as_ref().map(|text| json!({"content": text})),
            step.call.as_ref().map(|call| json!({"tool_calls": calls(call)})),
            step.delta.clone(),
        ];
        let mut pieces: Vec<String> = deltas.into_iter().flatten().map(|delta| event(&self.chunk(&delta, None))).collect();
        pieces.extend(step.event.as_ref().map(event));
        pieces.extend(step.error.as_ref().map(|error| event(&json!({"error": error}))));
        pieces.extend(step.raw.clone());
        Pieces(pieces)
    }

    /// What follows the last part.
    pub fn closing(&self, chat: &Chat, said: u64) -> Vec<String> {
        let mut pieces = Vec::new();
        pieces.extend(chat.finish.as_deref().map(|finish| event(&self.chunk(&json!({}), Some(finish)))));
        if let Some(used) = chat.usage.filter(|_| self.usage) {
            let mut last = self.chunk(&json!({}), None);
            last["choices"] = json!([]);
            last["usage"] = self.figures(used, said);
            pieces.push(event(&last));
        }
        if chat.done {
            pieces.push("data: [DONE]\n\n".to_owned());
        }
        pieces
    }

    /// Figures as llama.cpp tells them.
    pub fn figures(&self, used: Used, said: u64) -> Value {
        let (prompt, completion) = (used.prompt.unwrap_or(self.prompt), used.completion.unwrap_or(said));
        let mut told = json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": used.cached.unwrap_or(0)}});
        if let Some(reasoning) = used.reasoning {
            told["completion_tokens_details"] = json!({"reasoning_tokens": reasoning});
        }
        told
    }

    /// The same answer in one document; an error in it is the whole answer.
    pub fn whole(&self, chat: &Chat, said: u64) -> Result<Value, Value> {
        let (mut text, mut reason, mut tools) = (String::new(), String::new(), Vec::<Value>::new());
        for step in chat.say.iter().map(step) {
            for _ in 0..step.repeat.max(1) {
                if let Some(error) = &step.error {
                    return Err(error.clone());
                }
                text.push_str(step.text.as_deref().unwrap_or_default());
                reason.push_str(step.reason.as_deref().unwrap_or_default());
                step.call.iter().flat_map(calls).for_each(|call| merge(&mut tools, call));
            }
        }
        let mut message = json!({"role": "assistant", "content": text});
        if !reason.is_empty() {
            message["reasoning_content"] = reason.into();
        }
        if !tools.is_empty() {
            message["tool_calls"] = tools.into();
        }
        let mut answer = self.chunk(&json!({}), chat.finish.as_deref());
        if self.plain {
            answer["choices"][0]["text"] = text.into();
        } else {
            answer["object"] = "chat.completion".into();
            answer["choices"] = json!([{"index": 0, "message": message, "finish_reason": chat.finish}]);
        }
        if let Some(used) = chat.usage {
            answer["usage"] = self.figures(used, said);
        }
        Ok(answer)
    }
}

/// A part as a step.
pub fn step(part: &Part) -> Step {
    match part {
        Part::Text(text) => Step { text: Some(text.clone()), ..Step::default() },
        Part::Step(step) => (**step).clone(),
    }
}

/// Tokens that a step stands for.
pub fn tokens(script: &Script, step: &Step) -> u64 {
    let call = step.call.as_ref().map(|call| script.tokens(&call.to_string()));
    [&step.text, &step.reason].into_iter().flatten().map(|text| script.tokens(text)).chain(call).sum()
}

fn calls(said: &Value) -> Vec<Value> {
    let list = said.as_array().cloned().unwrap_or_else(|| vec![said.clone()]);
    list.into_iter().map(|call| if call.get("function").is_some() { call } else { short(&call) }).collect()
}

/// Fields stand in llama.cpp's order; what is not said is left out.
fn short(said: &Value) -> Value {
    let mut call = Map::new();
    for name in ["index", "id"] {
        said.get(name).map(|value| call.insert(name.to_owned(), value.clone()));
    }
    if said.get("id").is_some() {
        call.insert("type".to_owned(), "function".into());
    }
    let function: Map<String, Value> =
        ["name", "arguments"].into_iter().filter_map(|name| said.get(name).map(|value| (name.to_owned(), value.clone()))).collect();
    call.insert("function".to_owned(), function.into());
    call.into()
}

/// Adds a piece of a call to the calls of a whole answer: it begins one when it names a function.
fn merge(tools: &mut Vec<Value>, mut piece: Value) {
    let more = piece["function"]["arguments"].as_str().unwrap_or_default().to_owned();
    let at = piece.as_object_mut().and_then(|call| call.remove("index")).and_then(|at| at.as_u64());
    let known = at.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < tools.len());
    let begins = piece["function"].get("name").is_some() && known.is_none();
    match known.or_else(|| tools.len().checked_sub(1).filter(|_| !begins)) {
        Some(at) => {
            let before = tools[at]["function"]["arguments"].as_str().unwrap_or_default().to_owned();
            tools[at]["function"]["arguments"] = (before + &more).into();
        }
        None => tools.push(piece),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> Form {
        Form { plain: false, model: "tiny".to_owned(), usage: true, prompt: 7 }
    }

    #[test]
    fn pieces_of_parallel_calls_become_whole_ones_and_keep_their_gaps_in_a_stream() {
        let chat: Chat = serde_json::from_value(json!({"say": [{"reason": "Hm."}, {"call": {"index": 0, "id": "a", "name": "f", "arguments": "{"}},
            {"call": {"index": 1, "name": "g", "arguments": ""}}, {"call": {"index": 0, "arguments": "}"}}], "finish": "tool_calls"}))
        .unwrap();
        let whole = form().whole(&chat, 5).unwrap();
        let calls = &whole["choices"][0]["message"]["tool_calls"];
        assert_eq!(calls[0], json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}));
        assert_eq!(calls[1], json!({"function": {"name": "g", "arguments": ""}}));
        assert_eq!(whole["usage"]["total_tokens"], 12);
        let second = form().pieces(&step(&chat.say[2])).0;
        assert_eq!(second.len(), 1);
        assert!(second[0].starts_with("data: {") && !second[0].contains("\"id\":\"a\"") && second[0].contains("\"index\":1"), "{second:?}");
    }

    #[test]
    fn a_stream_ends_as_the_script_says() {
        let chat: Chat =
            serde_json::from_value(json!({"finish": null, "done": false, "usage": {"prompt": 3, "cached": 1, "completion": 2}})).unwrap();
        let end = form().closing(&chat, 9);
        assert!(end.len() == 1 && end[0].contains("\"cached_tokens\":1") && end[0].contains("\"total_tokens\":5"), "{end:?}");
        assert_eq!(Form { usage: false, ..form() }.closing(&Chat::default(), 1).len(), 2);
        assert_eq!(form().whole(&serde_json::from_value(json!({"say": ["a", {"error": {"code": 500}}]})).unwrap(), 1), Err(json!({"code": 500})));
    }
}
