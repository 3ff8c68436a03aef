//! One request's ticket: from its arrival at the scheduler to its end. Dropping it, whenever and wherever, is that end: who waits leaves
//! the queue, who runs frees the place.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::sync::oneshot;
use warden_domain::{Problem, ids::ModelId, key::Priority, replica::Replica, units::Tokens};
use warden_schedule::{Arrival, Class, ConversationId, Event, Return, Ticket, Used, identity::Asked};

use crate::{
    flights::Seat,
    places::{Place, Places, Verdict},
    refusal,
    tap::Usage,
};

/// How often one who waits looks at the clock and at the table of replicas.
const LOOK: Duration = Duration::from_millis(250);

/// What a request brings to the scheduler.
pub(crate) struct Ask {
    /// What tells its conversation; `None`: it belongs to none.
    pub asked: Option<Asked>,
    /// The engine streams its answer.
    pub streamed: bool,
    /// How long it may wait.
    pub patience: Duration,
    /// How it stands among those that wait.
    pub priority: Priority,
}

/// The scheduler's class: lower goes first.
const fn class(priority: Priority) -> Class {
    Class(Class::USUAL.0 + Priority::USUAL.number() - priority.number())
}

/// See the module.
pub(crate) struct Pass {
    places: Arc<Places>,
    place: Arc<Place>,
    name: String,
    ticket: Ticket,
    conversation: Option<ConversationId>,
    streamed: bool,
    news: oneshot::Receiver<Verdict>,
    verdict: Option<Verdict>,
    done: Option<Used>,
}

impl Pass {
    /// Brings a request to the scheduler of its model. An error is a refusal at once; otherwise it runs or waits from now on.
    pub(crate) fn enter(places: &Arc<Places>, name: &str, ask: Ask) -> Result<Self, Problem> {
        let place = places.find(name)?;
        let (ticket, (waiter, news)) = (places.ticket(), oneshot::channel());
        let conversation = {
            let mut inner = place.up_to_date(places);
            let now = places.now();
            let met = ask.asked.map(|asked| inner.book.meet(&asked, now)).unwrap_or_default();
            for conversation in met.forgotten {
                inner.tell(Event::Forget { conversation }, now);
            }
            inner.waiters.insert(ticket, waiter);
            let (conversation, streamed, patience) = (met.conversation, ask.streamed, ask.patience);
            inner.tell(Event::Arrive(Arrival { ticket, class: class(ask.priority), conversation, streamed, patience }), now);
            conversation
        };
        let (places, name) = (Arc::clone(places), name.to_owned());
        let mut pass = Self { places, place, name, ticket, conversation, streamed: ask.streamed, news, verdict: None, done: None };
        match pass.news.try_recv() {
            Ok(Verdict::No(why)) => Err(pass.refused(why)),
            Ok(go @ Verdict::Go(_)) => {
                pass.verdict = Some(go);
                Ok(pass)
            }
            Err(_) => Ok(pass),
        }
    }

    /// The model.
    pub(crate) fn model(&self) -> &ModelId {
        &self.place.id
    }

    /// The model's name, as the client wrote it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits for a replica and takes a seat on it, and makes sure that it is still offered then: a model that is being unloaded waits for
    /// seats, so a seat taken too late must be given back.
    pub(crate) async fn placed(&mut self) -> Result<(Arc<Replica>, Seat), Problem> {
        loop {
            let verdict = match self.verdict.take() {
                Some(verdict) => verdict,
                None => self.hear().await?,
            };
            let replica = match verdict {
                Verdict::Go(replica) => replica,
                Verdict::No(why) => return Err(self.refused(why)),
            };
            let seat = self.places.flights.board(&self.place.id, &replica.id);
            if self.is_offered(&replica) {
                return Ok((replica, seat));
            }
            drop(seat);
            self.back(Return::Withdrawn);
        }
    }

    async fn hear(&mut self) -> Result<Verdict, Problem> {
        loop {
            match tokio::time::timeout(LOOK, &mut self.news).await {
                Ok(Ok(verdict)) => return Ok(verdict),
                Ok(Err(_)) => return Err(Problem::internal("The scheduler lost sight of this request.").hint("Try again.")),
                Err(_) => self.place.tell(&self.places, Event::Tick),
            }
        }
    }

    fn is_offered(&self, replica: &Replica) -> bool {
        let table = self.places.serving.table();
        table.models.values().any(|m| m.id == self.place.id && m.replicas.iter().any(|r| r.id == replica.id && r.launch == replica.launch))
    }

    /// It got no byte where it was; `placed` finds it another replica.
    pub(crate) fn back(&mut self, why: Return) {
        let (waiter, news) = oneshot::channel();
        (self.news, self.verdict) = (news, None);
        let mut inner = self.place.up_to_date(&self.places);
        inner.waiters.insert(self.ticket, waiter);
        inner.tell(Event::Back { ticket: self.ticket, why }, self.places.now());
    }

    /// The first byte of the answer came.
    pub(crate) fn first_token(&self) {
        self.place.tell(&self.places, Event::FirstToken { ticket: self.ticket });
    }

    /// The answer is whole, and its last bytes are about to leave: from now on a next turn goes on with this conversation.
    pub(crate) fn answered(&mut self, usage: Usage) {
        if let Some(conversation) = self.conversation.take() {
            let tokens = usage.prompt.zip(usage.completion).map(|(p, c)| Tokens(p.0.saturating_add(c.0)));
            self.place.lock().book.leave(conversation, true, tokens, self.places.now());
        }
    }

    /// The engine is done with it; without this, its end is that nobody waits for it any more.
    pub(crate) const fn done(&mut self, usage: Usage) {
        self.done = Some(Used { prompt: usage.prompt, cached: usage.cached });
    }

    /// The answer ran away.
    pub(crate) fn ran_away(&self) {
        self.place.runaways.fetch_add(1, Ordering::Relaxed);
    }

    /// The answer is streamed.
    pub(crate) const fn streamed(&self) -> bool {
        self.streamed
    }

    fn refused(&self, why: warden_schedule::Refusal) -> Problem {
        refusal::of(why, &self.name, &self.places.serving.table())
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let now = self.places.now();
        let mut inner = self.place.up_to_date(&self.places);
        inner.waiters.remove(&self.ticket);
        if let Some(conversation) = self.conversation {
            inner.book.leave(conversation, false, None, now);
        }
        let ticket = self.ticket;
        let end = self.done.map_or(Event::Cancel { ticket }, |used| Event::Done { ticket, used });
        inner.tell(end, now);
    }
}
