//! An answer in one piece: collected from the engine, whether it comes streamed or as one document, and told once it is complete.
//!
//! Some engines notice only of a streamed answer that nobody waits for it any more. So they are asked for a stream also where the
//! client did not, and what came is put together here. Nothing is told before the end, so that a fault is a plain status.

use warden_domain::Problem;

use super::{
    chat::{
        answer::{Answer, Finish, unusable},
        stream::{Ending, Reader, Step},
        usage::Counts,
    },
    messages, responses,
};

/// Most bytes of an answer; no model writes half as much.
const MOST: usize = 64 * 1024 * 1024;

/// How the answer is told.
#[derive(Debug)]
enum Teller {
    Messages(messages::Plan),
    Responses(responses::Plan),
}

/// See the module.
#[derive(Debug)]
pub struct Whole {
    teller: Teller,
    streamed: bool,
    document: Vec<u8>,
    reader: Reader,
    thinking: String,
    text: String,
    begun: bool,
    too_long: bool,
    counts: Counts,
}

impl From<messages::Plan> for Whole {
    fn from(plan: messages::Plan) -> Self {
        Self::new(Teller::Messages(plan))
    }
}

impl From<responses::Plan> for Whole {
    fn from(plan: responses::Plan) -> Self {
        Self::new(Teller::Responses(plan))
    }
}

impl Whole {
    fn new(teller: Teller) -> Self {
        Self {
            teller,
            streamed: false,
            document: Vec::new(),
            reader: Reader::default(),
            thinking: String::new(),
            text: String::new(),
            begun: false,
            too_long: false,
            counts: Counts::default(),
        }
    }

    /// An engine begins to answer, streamed or not. What another one said before is forgotten.
    pub fn begin(&mut self, streamed: bool) {
        self.streamed = streamed;
        (self.begun, self.too_long, self.reader) = (false, false, Reader::default());
        self.document.clear();
        self.thinking.clear();
        self.text.clear();
    }

    /// Takes bytes of the engine.
    pub fn feed(&mut self, bytes: &[u8]) {
        let held = self.document.len() + self.thinking.len() + self.text.len() + bytes.len();
        self.too_long |= held > MOST;
        if self.too_long {
            return;
        }
        if !self.streamed {
            self.begun |= !bytes.is_empty();
            self.document.extend_from_slice(bytes);
            return;
        }
        let Self { reader, thinking, text, begun, .. } = self;
        reader.feed(bytes, |step, _| collect(step, thinking, text, begun));
        self.counts = *self.reader.counts();
    }

    /// The engine is done: the body for the client.
    ///
    /// # Errors
    /// When what came is no whole answer.
    pub fn close(&mut self) -> Result<Vec<u8>, Problem> {
        if self.too_long {
            return Err(unusable());
        }
        let answer = if self.streamed { self.streamed_answer()? } else { Answer::read(&self.document, self.seed())? };
        self.counts = answer.counts;
        Ok(match &self.teller {
            Teller::Messages(plan) => plan.told(&answer),
            Teller::Responses(plan) => plan.told(&answer),
        })
    }

    /// Ends a streamed answer here, as if it had come to its limit of tokens: the body for the client.
    ///
    /// # Errors
    /// As `close`.
    pub fn stop_short(&mut self) -> Result<Vec<u8>, Problem> {
        self.reader.stop_short();
        self.close()
    }

    /// Whether a stream that ends now is cut.
    #[must_use]
    pub const fn is_unfinished(&self) -> bool {
        self.streamed && !self.reader.has_finish() && !self.reader.has_failed()
    }

    /// Whether the model began to answer.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        self.begun
    }

    /// What the answer used, as far as the engine said.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    fn streamed_answer(&mut self) -> Result<Answer, Problem> {
        let Self { reader, thinking, text, begun, .. } = self;
        reader.close(|step, _| collect(step, thinking, text, begun));
        let seed = self.seed().to_owned();
        match self.reader.ending(&seed) {
            Some(Ending::Whole { calls, finish }) => Ok(self.answer(calls, finish)),
            Some(Ending::Failed(problem)) => Err(problem),
            Some(Ending::Cut) | None => Err(unusable()),
        }
    }

    fn answer(&mut self, calls: Vec<super::chat::calls::MadeCall>, finish: Finish) -> Answer {
        let (thinking, text) = (std::mem::take(&mut self.thinking), std::mem::take(&mut self.text));
        Answer { thinking, text, calls, finish, counts: *self.reader.counts() }
    }

    fn seed(&self) -> &str {
        match &self.teller {
            Teller::Messages(plan) => plan.seed(),
            Teller::Responses(plan) => plan.seed(),
        }
    }
}

fn collect(step: Step<'_>, thinking: &mut String, text: &mut String, begun: &mut bool) {
    *begun = true;
    match step {
        Step::Thinking(said) => thinking.push_str(said),
        Step::Text(said) => text.push_str(said),
        Step::Calling => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::dialects::{messages::MessagesRequest, responses::ResponsesRequest};

    const STREAM: &str = concat!(
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hel\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n",
    );
    const DOCUMENT: &str = r#"{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hello","reasoning_content":"hm"}}],
        "usage":{"prompt_tokens":7,"completion_tokens":3}}"#;

    fn both() -> [Whole; 2] {
        let messages = br#"{"model":"m","thinking":{"type":"adaptive"},"messages":[{"role":"user","content":"x"}]}"#;
        let responses = br#"{"model":"m","input":"x","reasoning":{"effort":"high"}}"#;
        [
            MessagesRequest::read(messages).unwrap().plan("req_1").into(),
            ResponsesRequest::read(responses).unwrap().plan("req_1", 1_700_000_000).unwrap().into(),
        ]
    }

    #[test]
    fn an_answer_put_together_from_a_stream_is_the_one_that_came_whole() {
        for (mut from_stream, mut from_document) in both().into_iter().zip(both()) {
            from_stream.begin(true);
            STREAM.as_bytes().chunks(11).for_each(|piece| from_stream.feed(piece));
            from_document.begin(false);
            from_document.feed(DOCUMENT.as_bytes());
            let (a, b) = (from_stream.close().unwrap(), from_document.close().unwrap());
            assert_eq!(String::from_utf8(a.clone()).unwrap(), String::from_utf8(b).unwrap());
            assert!(serde_json::from_slice::<Value>(&a).is_ok());
            assert_eq!((from_stream.counts().prompt, from_stream.counts().completion), (Some(7), Some(3)));
        }
    }

    #[test]
    fn half_an_answer_is_none_and_another_engine_begins_anew() {
        for mut whole in both() {
            whole.begin(true);
            whole.feed(&STREAM.as_bytes()[..STREAM.len() / 2]);
            assert!(whole.has_begun() && whole.close().is_err());
            whole.begin(true);
            whole.feed(STREAM.as_bytes());
            let text = String::from_utf8(whole.close().unwrap()).unwrap();
            assert_eq!(text.matches("hello").count(), 1, "{text}");
        }
    }
}
