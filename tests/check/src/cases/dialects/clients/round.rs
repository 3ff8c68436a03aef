//! What is played with each coding client: a turn with one tool, a turn with two at a time, an answer; then trouble of several kinds.
//!
//! The engine's script knows where a conversation stands by what is in the request: a tool's output stands there only after the client
//! ran it, because the command spells it otherwise.

use serde_json::{Value, json};

use crate::result::CaseResult;

/// The wish that begins the round.
pub const ROUND: &str = "Please do the round now.";
/// The wish that goes on with it later.
pub const AGAIN: &str = "And what was it, once more?";
/// The answer that ends the round.
pub const DONE: &str = "All done: left and right.";
/// The answer to [`AGAIN`].
pub const AGAIN_DONE: &str = "It was left and right.";
/// The engine is busy when this is asked for the first time.
pub const BUSY: &str = "Please say whether you are busy.";
/// The engine breaks off when this is asked for the first time.
pub const BREAK: &str = "Please tell half a story.";
/// What does not fit.
pub const TOO_LONG: &str = "Please read far too much.";
/// The answer after any trouble.
pub const HERE: &str = "Here I am.";
/// What the first command prints; it is written otherwise.
const FIRST: &str = "round-one";
/// What the other two print.
const BOTH: [&str; 2] = ["left-two", "right-two"];

/// Prompt tokens of the round's three answers, all of them together, as the engine counts them.
pub const PROMPT: u64 = 500 + 700 + 900;
/// Of these from the cache.
pub const CACHED: u64 = 500 + 700;
/// Tokens of the round's answers.
pub const COMPLETION: u64 = 20 + 40 + 9;

/// The script. `tool` runs a command of a shell, which it takes under the name `argument`.
pub fn script(tool: &str, argument: &str) -> Value {
    let command = |words: &str| json!({argument: format!("printf '%s-%s' {words}"), "description": "Prints two words"}).to_string();
    let (first, left, right) = (command("round one"), command("left two"), command("right two"));
    let (head, tail) = first.split_at(first.len() / 2);
    let call = |index: u64, id: &str, arguments: &str| json!({"call": {"index": index, "id": id, "name": tool, "arguments": arguments}});
    let said = |text: &str| json!({"chat": {"say": [text], "usage": {"prompt": 100, "completion": 4}}});
    json!({"rules": [
        {"when": {"contains": "You are a title"}, "act": said("A round")},
        {"when": {"contains": AGAIN}, "act": said(AGAIN_DONE)},
        {"when": {"contains": BOTH[0]},
            "act": {"chat": {"say": ["All done: ", "left and right."], "usage": {"prompt": 900, "cached": 700, "completion": 9}}}},
        {"when": {"contains": FIRST},
            "act": {"chat": {"say": [call(0, "call_left", &left), call(1, "call_right", &right)],
                "finish": "tool_calls", "usage": {"prompt": 700, "cached": 500, "completion": 40}}}},
        {"when": {"contains": ROUND},
            "act": {"chat": {"say": [{"reason": "A tool will tell."}, "I will run it. ", call(0, "call_first", head), {"call": {"index": 0, "arguments": tail}}],
                "finish": "tool_calls", "usage": {"prompt": 500, "completion": 20}}}},
        {"when": {"contains": BUSY}, "times": 1,
            "act": {"answer": {"status": 503, "json": {"error": {"code": 503, "type": "unavailable_error", "message": "Loading model"}}}}},
        {"when": {"contains": BREAK}, "times": 1,
            "act": {"chat": {"say": ["Half a ", {"error": {"code": 500, "type": "server_error", "message": "the engine stumbled"}}, {"cut": true}]}}},
        {"when": {"contains": TOO_LONG},
            "act": {"answer": {"status": 400, "json": {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 200_000, "n_ctx": 131_072,
                "message": "request (200000 tokens) exceeds the available context size (131072 tokens), try increasing it"}}}}},
        {"when": {"path": "/v1/chat/completions"}, "act": said(HERE)}
    ]})
}

/// Whether a request is a turn of the conversation: it has tools. A title's has none.
pub fn is_turn(asked: &Value) -> bool {
    asked["body"]["tools"].as_array().is_some_and(|tools| !tools.is_empty())
}

/// Expects that the engine was asked for the round's three answers and no more, and that the last request holds both calls and their
/// results under their ids.
pub fn was_played(asked: &[Value], result: &mut CaseResult, name: &str) {
    let turns: Vec<&Value> = asked.iter().filter(|a| is_turn(a)).collect();
    let streamed = turns.iter().filter(|a| a["body"]["stream"] == true).count();
    result.expect(
        turns.len() == 3 && streamed == 3,
        format!("{name}: three turns, all streamed, none asked twice ({} asked, {streamed} streamed)", turns.len()),
    );
    let whole = asked.iter().filter(|a| a["ended"] == "finished").count();
    result.expect(whole == asked.len(), format!("{name}: every answer was read to its end ({whole} of {})", asked.len()));
    let messages = turns.last().and_then(|a| a["body"]["messages"].as_array().cloned()).unwrap_or_default();
    // A client may tell results in the order in which its commands ended.
    let mut results: Vec<(&str, String)> =
        messages.iter().filter(|m| m["role"] == "tool").filter_map(|m| Some((m["tool_call_id"].as_str()?, text(&m["content"])))).collect();
    results.sort();
    let calls = messages.iter().flat_map(|m| m["tool_calls"].as_array().into_iter().flatten());
    let mut calls: Vec<&str> = calls.filter_map(|c| c["id"].as_str()).collect();
    calls.sort_unstable();
    let ids: Vec<&str> = results.iter().map(|(id, _)| *id).collect();
    result.expect(calls.len() == 3 && calls == ids, format!("{name}: each call of the history has its result behind it ({calls:?})"));
    // In the order of the ids: call_first, call_left, call_right.
    let all = results.len() == 3 && results.iter().zip([FIRST, BOTH[0], BOTH[1]]).all(|((_, said), output)| said.contains(output));
    result.expect(all, format!("{name}: the results are what the commands printed ({} results)", results.len()));
}

/// Expects how often the engine was asked in a time of trouble, titles not counted.
pub fn turns_asked(asked: &[Value], wanted: usize, result: &mut CaseResult, what: &str) {
    let turns = asked.iter().filter(|a| is_turn(a)).count();
    result.expect(turns == wanted, format!("{what}: the engine was asked {turns} times ({wanted} expected)"));
}

/// The text of a message's content in either form.
fn text(content: &Value) -> String {
    match content {
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_never_holds_what_it_prints() {
        let text = script("Bash", "command").to_string();
        for output in [FIRST, BOTH[0], BOTH[1]] {
            // Once, in the rule that waits for it, or not at all.
            assert!(text.matches(output).count() <= 1, "{output}");
        }
    }

    #[test]
    fn a_round_that_was_asked_twice_is_seen() {
        let turn = json!({"ended": "finished", "body": {"stream": true, "tools": [{}], "messages": []}});
        let mut result = CaseResult::new("x.log");
        was_played(&[turn.clone(), turn.clone(), turn.clone(), turn], &mut result, "x");
        assert!(!result.passed && result.sentences[0].starts_with("NOT MET"));
    }
}
