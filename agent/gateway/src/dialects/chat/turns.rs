//! Lines up a conversation for a chat template, which allows less than the other dialects do.
//!
//! - One system message, at the start. Later ones are put into the user's turn at the place where they stand, marked as such; a
//!   place, once taken, never moves, so that the next request of the conversation begins with the bytes of this one.
//! - Results of tools directly behind the turn that called them; what else the user said comes after them.
//! - Turns of one role in a row are one turn; empty ones are left out.
//! - Images out of tool results go to the user's turn behind, with a label, because a tool's message holds text only.

use std::collections::HashSet;

use warden_domain::{Problem, ProblemKind};

use super::request::{Assistant, Call, Message, Part};
use crate::dialects::text::{Quoted, Text};

/// Stands for an image that the model cannot see.
pub(super) const UNSEEN: &str = "[An image was here. This model reads text only; say so if it matters.]";

/// Longest id of a call that is said beside each image of its result: a long one said often would be more than the whole request.
const LONGEST_LABEL: usize = 256;

/// See the module.
#[derive(Debug)]
pub(in crate::dialects) struct Turns<'a> {
    system: Text<'a>,
    messages: Vec<Message<'a>>,
    /// What goes to the beginning of the next turn of the user, or makes one.
    pending: Vec<Part<'a>>,
    calls: HashSet<Quoted<'a>>,
    /// Whether the model sees images.
    images: bool,
    /// Somebody said something, even if it was nothing.
    begun: bool,
}

impl<'a> Turns<'a> {
    /// `images`: whether the model reads them, if that is known.
    pub(in crate::dialects) fn new(images: Option<bool>) -> Self {
        Self {
            system: Text::default(),
            messages: Vec::new(),
            pending: Vec::new(),
            calls: HashSet::new(),
            images: images.unwrap_or(true),
            begun: false,
        }
    }

    /// A word of the system or the developer.
    pub(in crate::dialects) fn system(&mut self, text: Text<'a>) {
        if text.is_empty() {
            return;
        }
        if self.messages.is_empty() && !self.begun {
            self.system.paragraph(text);
            return;
        }
        let mut marked = Text::plain("[System message]\n");
        marked.append(text);
        marked.append(Text::plain("\n[End of system message]"));
        match self.messages.last_mut() {
            Some(Message::User(parts)) => push(parts, Part::Text(marked)),
            _ => push(&mut self.pending, Part::Text(marked)),
        }
    }

    /// What the user says.
    pub(in crate::dialects) fn user(&mut self, part: Part<'a>) {
        self.begun = true;
        let part = self.seen(part);
        push(&mut self.pending, part);
        let parts = std::mem::take(&mut self.pending);
        match self.messages.last_mut() {
            Some(Message::User(before)) => parts.into_iter().for_each(|part| push(before, part)),
            _ => self.messages.push(Message::User(parts)),
        }
    }

    /// Adds to the turn of the model that goes on or begins here.
    pub(in crate::dialects) fn assistant(&mut self, add: impl FnOnce(&mut Assistant<'a>)) {
        self.begun = true;
        self.flush();
        if let Some(Message::Assistant(turn)) = self.messages.last_mut() {
            add(turn);
        } else {
            let mut turn = Assistant::default();
            add(&mut turn);
            self.messages.push(Message::Assistant(turn));
        }
    }

    /// A tool the model called.
    pub(in crate::dialects) fn call(&mut self, call: Call<'a>) {
        self.calls.insert(call.id);
        self.assistant(|turn| turn.calls.push(call));
    }

    /// The result of a call; its images, in order, go to the user's turn behind.
    pub(in crate::dialects) fn result(&mut self, call: Quoted<'a>, text: Text<'a>, images: Vec<Text<'a>>) -> Result<(), Problem> {
        if !self.calls.contains(&call) {
            return Err(Problem::new(
                ProblemKind::BadRequest,
                format!("There is a result for the tool call {:?}, which was not made before.", call.decoded()),
            )
            .hint("A result follows the message with its call; start a new conversation if the call was lost."));
        }
        let at = match self.messages.as_slice() {
            [.., Message::Assistant(_) | Message::Tool { .. }, Message::User(_)] => self.messages.len() - 1,
            _ => self.messages.len(),
        };
        // An empty result would look as if the tool had found nothing.
        let text = if text.is_empty() && !images.is_empty() { Text::plain("The result is an image; it follows.") } else { text };
        self.messages.insert(at, Message::Tool { call, text });
        for image in images {
            let image = self.seen(Part::Image(image));
            push(&mut self.pending, Part::Text(label(call)));
            push(&mut self.pending, image);
        }
        Ok(())
    }

    /// The messages.
    pub(in crate::dialects) fn finish(mut self) -> Result<Vec<Message<'a>>, Problem> {
        self.flush();
        let mut lined_up: Vec<Message<'a>> = Vec::with_capacity(self.messages.len() + 1);
        if !self.system.is_empty() {
            lined_up.push(Message::System(self.system));
        }
        let leading = lined_up.len();
        for message in self.messages {
            match message {
                Message::Assistant(turn) if turn.text.is_empty() && turn.calls.is_empty() => {}
                Message::User(parts) if parts.is_empty() => {}
                Message::User(parts) => match lined_up.last_mut() {
                    Some(Message::User(before)) => parts.into_iter().for_each(|part| push(before, part)),
                    _ => lined_up.push(Message::User(parts)),
                },
                other => lined_up.push(other),
            }
        }
        if lined_up.len() == leading {
            if !self.begun {
                return Err(
                    Problem::new(ProblemKind::BadRequest, "The request holds no message to answer.").hint("Send at least one message of a user.")
                );
            }
            lined_up.push(Message::User(vec![Part::Text(Text::default())]));
        }
        Ok(lined_up)
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            let parts = std::mem::take(&mut self.pending);
            self.messages.push(Message::User(parts));
        }
    }

    fn seen(&self, part: Part<'a>) -> Part<'a> {
        match part {
            Part::Image(_) if !self.images => Part::Text(Text::plain(UNSEEN)),
            other => other,
        }
    }
}

fn label(call: Quoted<'_>) -> Text<'_> {
    if call.escaped().len() > LONGEST_LABEL {
        return Text::plain("[Image in the result of a tool call]");
    }
    Text::plain("[Image in the result of tool call ").quoted(call).then("]")
}

/// Adds a part; text behind text is one text.
fn push<'a>(parts: &mut Vec<Part<'a>>, part: Part<'a>) {
    match (parts.last_mut(), part) {
        (_, Part::Text(text)) if text.is_empty() => {}
        (Some(Part::Text(before)), Part::Text(text)) => before.paragraph(text),
        (_, part) => parts.push(part),
    }
}
