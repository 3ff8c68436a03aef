//! OpenAI's Responses API: read, made into chat, and answered from chat.
//!
//! It keeps nothing: every request brings its whole conversation, and one that relies on an earlier answer is refused.

mod answer;
mod items;
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
    chat::{answer::Answer, usage::Counts},
    lists, numbers,
    text::Quoted,
};

/// A request that was read.
#[derive(Debug)]
pub struct ResponsesRequest<'a> {
    body: Body<'a>,
    model: String,
    size: usize,
}

impl<'a> ResponsesRequest<'a> {
    /// Reads a body of `/v1/responses`.
    ///
    /// # Errors
    /// `BadRequest` when it is no JSON object, a field has the wrong form, or its lists hold too much.
    pub fn read(body: &'a [u8]) -> Result<Self, Problem> {
        let read: Body<'a> = lists::body(body, "OpenAI's Responses API")?;
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
        self.body.prompt_cache_key.map(|key| key.decoded().into_owned()).filter(|key| !key.is_empty())
    }

    /// What nobody reads of it.
    #[must_use]
    pub fn leftovers(&self) -> Leftovers {
        self.body.leftovers()
    }

    /// The body for `/v1/chat/completions` of an engine.
    ///
    /// # Errors
    /// `BadRequest`, naming the field, when it holds what no engine here can be asked, or relies on an answer that was kept.
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

    /// What to keep for the answer. `request` is the id of the request, `created` when it came in seconds since the epoch.
    ///
    /// # Errors
    /// `BadRequest` when the tools cannot be told apart.
    pub fn plan(&self, request: &str, created: i64) -> Result<Plan, Problem> {
        let body = &self.body;
        let mut echoes: Vec<(&'static str, String)> = [
            ("tool_choice", body.tool_choice),
            ("max_output_tokens", body.max_output_tokens),
            ("temperature", body.temperature),
            ("top_p", body.top_p),
            ("metadata", body.metadata),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?.get().to_owned())))
        .filter(|(_, value)| value.len() <= plan::LONGEST_ECHO)
        .collect();
        if let Some(parallel) = body.parallel_tool_calls {
            echoes.push(("parallel_tool_calls", parallel.to_string()));
        }
        let effort = body.reasoning.as_ref().and_then(|r| r.effort).filter(|effort| effort.escaped().len() <= plan::LONGEST_ECHO);
        if let Some(effort) = effort.map(Quoted::escaped) {
            echoes.push(("reasoning", format!("{{\"effort\":\"{effort}\",\"summary\":null}}")));
        }
        Ok(Plan {
            request: request.to_owned(),
            created,
            model: self.model.clone(),
            thinking: translate::thinks(body),
            sealed: body.include.iter().flatten().any(|what| what.is(request::SEALED)),
            origins: tools::list(body)?.origins,
            echoes,
        })
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
        answer::whole(answer, self)
    }
}
