//! Anthropic's Messages API: read, made into chat, and answered from chat.
//!
//! Reading is one pass over the body; what it says stays borrowed from it. Nothing of Anthropic's own ways (caching marks, betas,
//! signatures) reaches an engine, and nothing a client sends is an error only because it is unknown.

mod answer;
mod plan;
mod request;
mod stream;
mod tools;
mod translate;

use warden_domain::Problem;

pub use self::plan::Plan;
use self::request::Body;
use super::{
    Leftovers, Target, Translation,
    chat::{answer::Answer, request::ChatRequest, usage::Counts},
    json, lists, numbers,
};

/// A request that was read.
#[derive(Debug)]
pub struct MessagesRequest<'a> {
    body: Body<'a>,
    model: String,
    size: usize,
}

impl<'a> MessagesRequest<'a> {
    /// Reads a body of `/v1/messages` or `/v1/messages/count_tokens`.
    ///
    /// # Errors
    /// `BadRequest` when it is no JSON object, a field has the wrong form, or its lists hold too much.
    pub fn read(body: &'a [u8]) -> Result<Self, Problem> {
        let read: Body<'a> = lists::body(body, "Anthropic's Messages API")?;
        let model = read.model.ok_or_else(|| translate::bad("The request names no model.", "model").hint("GET /v1/models lists those there are."))?;
        Ok(Self { model: model.decoded().into_owned(), body: read, size: body.len() })
    }

    /// The model named.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Whether the answer is to be streamed.
    #[must_use]
    pub fn streams(&self) -> bool {
        self.body.stream.unwrap_or(false)
    }

    /// The session the client says this belongs to.
    #[must_use]
    pub fn session(&self) -> Option<String> {
        translate::session(self.body.metadata.as_ref()?.user_id?)
    }

    /// What nobody reads of it.
    #[must_use]
    pub fn leftovers(&self) -> Leftovers {
        self.body.leftovers()
    }

    /// The body for `/v1/chat/completions` of an engine.
    ///
    /// # Errors
    /// `BadRequest`, naming the field, when it holds what no engine here can be asked.
    pub fn chat(&self, target: &Target<'_>) -> Result<Vec<u8>, Problem> {
        self.chat_as(target, self.streams())
    }

    /// The same, streamed or not whatever the client asked.
    ///
    /// # Errors
    /// As `chat`.
    pub fn chat_as(&self, target: &Target<'_>, stream: bool) -> Result<Vec<u8>, Problem> {
        let mut chat = translate::chat(&self.body, target)?;
        chat.stream = stream;
        chat.max_tokens = chat.max_tokens.filter(|asked| numbers::fits(*asked, target.window, self.size));
        Ok(chat.write(target, self.size))
    }

    /// The body with which an engine is asked how long the prompt is: the chat request without what concerns its answer.
    ///
    /// # Errors
    /// As `chat`.
    pub fn count(&self, target: &Target<'_>) -> Result<Vec<u8>, Problem> {
        let chat = translate::chat(&self.body, target)?;
        let prompt = ChatRequest { messages: chat.messages, tools: chat.tools, no_thinking: chat.no_thinking, ..ChatRequest::default() };
        Ok(prompt.write(target, self.size))
    }

    /// What to keep for the answer. `request` is the id of the request.
    #[must_use]
    pub fn plan(&self, request: &str) -> Plan {
        let thinking = self.body.thinking.as_ref().and_then(|t| t.kind).is_some_and(|kind| !kind.is("disabled"));
        Plan { request: request.to_owned(), model: self.model.clone(), thinking }
    }
}

impl Plan {
    /// Translates a stream of the engine.
    #[must_use]
    pub fn stream(self) -> Translation {
        let seed = self.seed().to_owned();
        Translation::new(Box::new(stream::Speaker::new(self)), &seed)
    }

    /// Translates a whole answer of the engine, and says what it used.
    ///
    /// # Errors
    /// `Upstream` when it is no answer.
    pub fn whole(&self, body: &[u8]) -> Result<(Vec<u8>, Counts), Problem> {
        let answer = Answer::read(body, self.seed())?;
        Ok((self.told(&answer), answer.counts))
    }

    /// The body of an answer.
    pub(in crate::dialects) fn told(&self, answer: &Answer) -> Vec<u8> {
        answer::write(answer, self)
    }
}

/// The answer of `/v1/messages/count_tokens`.
#[must_use]
pub fn counted(tokens: u64) -> Vec<u8> {
    json::document(|o| o.number("input_tokens", tokens))
}

/// The number in an engine's answer about the length of a prompt, whichever engine it is.
#[must_use]
pub fn read_count(body: &[u8]) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Counted {
        input_tokens: Option<u64>,
        count: Option<u64>,
    }
    serde_json::from_slice::<Counted>(body).ok().and_then(|c| c.input_tokens.or(c.count))
}
