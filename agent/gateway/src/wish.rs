//! What a request asks for: read once, by the dialect of its path. Pure.

use axum::http::HeaderValue;
use bytes::Bytes;
use warden_domain::{Problem, clock, engine::EngineKind, ids::RequestId, replica::ServedModel};
use warden_schedule::identity::Scan;

use crate::{
    dialects::{Dialect, Leftovers, Target, Whole, chat::unseen, messages::MessagesRequest, responses::ResponsesRequest},
    multipart,
    routes::{self, Call},
    scan,
    spliced::Spliced,
    tap::{JsonTap, SseTap, Tap},
};

/// A request that was read, and the body it was read of.
pub(crate) enum Wish<'a> {
    /// Goes through as bytes.
    Plain(Box<scan::Asked>),
    /// Anthropic's Messages.
    Messages(Box<MessagesRequest<'a>>),
    /// OpenAI's Responses.
    Responses(Box<ResponsesRequest<'a>>),
}

impl<'a> Wish<'a> {
    /// Reads a body; `kind`: the content type of a form.
    pub(crate) fn read(call: &Call, kind: Option<&HeaderValue>, body: &'a [u8]) -> Result<Self, Problem> {
        Ok(match call.dialect {
            Dialect::Chat if call.form => Self::Plain(Box::new(multipart::read(kind, body)?.into())),
            Dialect::Chat => Self::Plain(Box::new(scan::read(body)?)),
            Dialect::Messages => Self::Messages(Box::new(MessagesRequest::read(body)?)),
            Dialect::Responses => Self::Responses(Box::new(ResponsesRequest::read(body)?)),
        })
    }

    /// The model named.
    pub(crate) fn model(&self) -> &str {
        match self {
            Self::Plain(asked) => &asked.model,
            Self::Messages(request) => request.model(),
            Self::Responses(request) => request.model(),
        }
    }

    /// Whether the client wants a stream.
    pub(crate) fn streams(&self) -> bool {
        match self {
            Self::Plain(asked) => asked.stream,
            Self::Messages(request) => request.streams(),
            Self::Responses(request) => request.streams(),
        }
    }

    /// How the answer is told. `engine`: the kind of engine that answers, once it is known.
    pub(crate) fn tap(&self, call: &Call, request: &RequestId, engine: Option<EngineKind>) -> Result<Tap, Problem> {
        let id = request.as_str();
        Ok(match self {
            Self::Plain(asked) if asked.stream && call.streams => Tap::Sse(SseTap::new(!asked.wants_usage)),
            Self::Plain(_) if engine.is_some_and(|engine| self.engine_streams(call, engine)) => Tap::Pieces(Box::default(), id.to_owned()),
            Self::Plain(_) => Tap::Json(JsonTap::default()),
            Self::Messages(request) if request.streams() => Tap::Told(Box::new(request.plan(id).stream())),
            Self::Messages(request) => Tap::Whole(Box::new(Whole::from(request.plan(id)))),
            Self::Responses(request) => {
                let plan = request.plan(id, clock::now().as_second())?;
                if request.streams() { Tap::Told(Box::new(plan.stream())) } else { Tap::Whole(Box::new(Whole::from(plan))) }
            }
        })
    }

    /// The body for the engines of a model; `body` is the client's.
    pub(crate) fn for_engine(&self, call: &Call, body: &Bytes, served: &ServedModel) -> Result<Spliced, Problem> {
        let target = Target { model: &served.served_name, engine: served.engine, images: served.images, window: served.context };
        let stream = self.engine_streams(call, served.engine);
        Ok(match self {
            Self::Plain(_) if call.optional => body.clone().into(),
            Self::Plain(asked) => {
                let edited = asked.edited(body, stream, served.context);
                let blind = served.images == Some(false) && call.path == routes::CHAT.path;
                if blind && unseen::may_show_images(body) { unseen::without_images(edited.to_bytes())?.into() } else { edited }
            }
            Self::Messages(request) => request.chat_as(&target, stream)?.into(),
            Self::Responses(request) => request.chat_as(&target, stream)?.into(),
        })
    }

    /// Whether an engine of this kind is asked for a stream. Where the client is not, the answer is put together here.
    pub(crate) fn engine_streams(&self, call: &Call, engine: EngineKind) -> bool {
        call.streams && (self.streams() || goes_on_for_nobody(engine))
    }

    /// What tells its conversation, if it is a turn of one. To be asked once. An error: no engine should see the body.
    pub(crate) fn talk(self, body: &[u8]) -> Result<Option<Scan>, Problem> {
        match self {
            Self::Plain(asked) => Ok(asked.talk),
            Self::Messages(_) | Self::Responses(_) => scan::talk(body),
        }
    }

    /// What nobody reads of it.
    pub(crate) fn leftovers(&self) -> Leftovers {
        match self {
            Self::Plain(_) => Leftovers::default(),
            Self::Messages(request) => request.leftovers(),
            Self::Responses(request) => request.leftovers(),
        }
    }
}

/// Whether an engine works on when nobody waits any more for an answer that is not streamed.
const fn goes_on_for_nobody(engine: EngineKind) -> bool {
    matches!(engine, EngineKind::LlamaCpp)
}
