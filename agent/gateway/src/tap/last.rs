//! The last chunk of a stream that is ended here: it says `length`, as if the answer had come to its limit of tokens, so that no client
//! takes the answer for complete and none repeats its request because of a fault. Pure.

use serde_json::{Map, Value, json};

use crate::runaway::Runaway;

/// Made after the newest chunk among `events` (newest first): the same id, name and kind of answer.
pub(super) fn chunk(events: impl Iterator<Item = Vec<u8>>, how: Runaway) -> Value {
    let like = events.filter_map(|data| serde_json::from_slice::<Map<String, Value>>(&data).ok()).find(|chunk| chunk.contains_key("choices"));
    let mut chunk = like.unwrap_or_else(|| Map::from_iter([("object".to_owned(), json!("chat.completion.chunk"))]));
    for figure in ["usage", "timings", "prompt_progress"] {
        chunk.remove(figure);
    }
    let first = chunk.get("choices").and_then(|choices| choices.get(0));
    let index = first.and_then(|choice| choice.get("index")).cloned().unwrap_or_else(|| json!(0));
    let choice = if first.is_some_and(|choice| choice.get("text").is_some()) {
        json!({"index": index, "text": "", "logprobs": null, "finish_reason": "length"})
    } else {
        json!({"index": index, "delta": {}, "finish_reason": "length"})
    };
    chunk.insert("choices".to_owned(), json!([choice]));
    chunk.insert("warden_stop".to_owned(), json!(how.as_str()));
    Value::Object(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_like_the_chunks_before_and_says_length() {
        let chat = br#"{"id":"c1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}],"usage":{"prompt_tokens":1}}"#;
        let made = chunk([b"[DONE]".to_vec(), chat.to_vec()].into_iter(), Runaway::Repetition);
        let expected = json!({"id": "c1", "object": "chat.completion.chunk", "model": "m", "warden_stop": "runaway_repetition",
            "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]});
        assert_eq!(made, expected);
        let text = br#"{"object":"text_completion","choices":[{"index":0,"text":"x"}]}"#;
        assert_eq!(chunk(std::iter::once(text.to_vec()), Runaway::Length)["choices"][0]["text"], "");
        assert_eq!(chunk(std::iter::empty(), Runaway::Thinking)["choices"][0]["finish_reason"], "length");
    }
}
