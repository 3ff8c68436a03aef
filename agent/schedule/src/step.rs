//! `step`: the one way a state changes.

use std::time::Duration;

use crate::{
    event::{Action, Arrival, Event, Moment, Refusal, Return, Ticket},
    queue::Waiting,
    state::{Open, Stand, State},
};

/// How often idle homes are swept out.
const SWEEP: Duration = Duration::from_secs(60);

/// Takes one event in and says what is to be done. An event about a ticket or a launch that is over changes nothing.
pub fn step(state: &mut State, event: Event, now: Moment) -> Vec<Action> {
    steps(state, [event], now)
}

/// The same for events that happened together: who waits is sent once all of them are known, so to no replica that one of them takes away.
pub fn steps(state: &mut State, events: impl IntoIterator<Item = Event>, now: Moment) -> Vec<Action> {
    let (mut actions, mut settled) = (Vec::new(), true);
    state.homes.advance(now, state.bounds.live);
    for event in events {
        // One that arrives finds out at once where it stands, and changes nothing for the others.
        settled &= matches!(event, Event::Arrive(_));
        state.take(event, now, &mut actions);
    }
    if !settled {
        state.pump(now, &mut actions);
    }
    actions
}

impl State {
    fn take(&mut self, event: Event, now: Moment, actions: &mut Vec<Action>) {
        match event {
            Event::Arrive(arrival) => self.arrive(arrival, now, actions),
            Event::FirstToken { ticket } => self.first_token(ticket),
            Event::Done { ticket, used } => self.ended(ticket, now, |replica| replica.used(used)),
            Event::Cancel { ticket } => self.cancel(ticket, now),
            Event::Back { ticket, why } => self.back(ticket, why, now, actions),
            Event::ReplicaUp { replica, launch, capacity } => self.replicas.up(replica, launch, capacity),
            Event::ReplicaDown { replica, launch } | Event::Drain { replica, launch } => self.replicas.withdraw(&replica, &launch),
            Event::Sample { replica, launch, at_work } => {
                if let Some(replica) = self.replicas.launch(&replica, &launch) {
                    let left = at_work.saturating_sub(u64::from(replica.in_flight));
                    replica.lingering.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                }
            }
            Event::Forget { conversation } => self.homes.forget(conversation),
            Event::Tick => self.tick(now, actions),
        }
    }

    fn arrive(&mut self, arrival: Arrival, now: Moment, actions: &mut Vec<Action>) {
        let ticket = arrival.ticket;
        if self.open.contains_key(&ticket) {
            return;
        }
        self.turns += 1;
        let turn = self.turns;
        let waiting = Waiting { arrival, since: now, until: now.saturating_add(arrival.patience), avoid: None };
        self.open.insert(ticket, Open { turn, stand: Stand::Waits { class: arrival.class } });
        self.queue.put(turn, waiting.clone());
        self.pump(now, actions);
        if !matches!(self.open.get(&ticket), Some(Open { stand: Stand::Waits { .. }, .. })) {
            return;
        }
        let full = self.queue.len() > self.bounds.queue;
        // The last one gives way to a newcomer of a higher class.
        let yields = self.queue.last().filter(|(_, last)| full && last.arrival.class > arrival.class).map(|(turn, last)| (turn, last.arrival));
        let late = self.expected(&waiting, turn, now).filter(|e| *e > arrival.patience);
        let retry_after = self.retry_after();
        let (turn, arrival, why) = match (yields, late) {
            (None, _) if full => (turn, arrival, Refusal::QueueFull { retry_after }),
            (_, Some(expected)) => (turn, arrival, Refusal::TooLong { expected }),
            (Some((turn, last)), None) => (turn, last, Refusal::QueueFull { retry_after }),
            (None, None) => return,
        };
        self.queue.take(arrival.class, turn);
        self.refuse(arrival.ticket, why, actions);
    }

    fn first_token(&mut self, ticket: Ticket) {
        if let Some(Open { stand: Stand::Runs { run, .. }, .. }) = self.open.get(&ticket)
            && let Some(replica) = self.replicas.run_mut(*run)
        {
            replica.works();
        }
    }

    /// A request that ran is over; `tell` is what its replica learns from it.
    fn ended(&mut self, ticket: Ticket, now: Moment, tell: impl FnOnce(&mut crate::replicas::Replica)) {
        let Some(Open { stand: Stand::Runs { arrival, run, since, .. }, .. }) = self.open.get(&ticket).cloned() else {
            self.leave_queue(ticket);
            return;
        };
        self.open.remove(&ticket);
        self.service.saw(now.saturating_sub(since));
        if let Some(conversation) = arrival.conversation {
            self.homes.rest(conversation, now);
        }
        if let Some(replica) = self.replicas.run_mut(run) {
            replica.in_flight = replica.in_flight.saturating_sub(1);
            tell(replica);
        }
    }

    fn leave_queue(&mut self, ticket: Ticket) {
        if let Some(Open { turn, stand: Stand::Waits { class } }) = self.open.remove(&ticket) {
            self.queue.take(class, turn);
        }
    }

    fn cancel(&mut self, ticket: Ticket, now: Moment) {
        let Some(Open { stand: Stand::Runs { arrival, run, .. }, .. }) = self.open.get(&ticket).cloned() else {
            self.leave_queue(ticket);
            return;
        };
        self.open.remove(&ticket);
        if let Some(conversation) = arrival.conversation {
            self.homes.rest(conversation, now);
        }
        // An engine that streams notices that nobody reads; one that does not goes on to the end, and its slot with it.
        let usual = self.service.mean().unwrap_or(self.bounds.linger);
        let until = now.saturating_add(usual.clamp(Duration::from_secs(1), self.bounds.linger));
        if let Some(replica) = self.replicas.run_mut(run) {
            replica.in_flight = replica.in_flight.saturating_sub(1);
            if !arrival.streamed && matches!(replica.capacity, warden_domain::engine::Capacity::Slots(_)) {
                replica.lingering.push(until);
            }
        }
    }

    fn back(&mut self, ticket: Ticket, why: Return, now: Moment, actions: &mut Vec<Action>) {
        let Some(Open { turn, stand: Stand::Runs { arrival, run, since, stayed } }) = self.open.get(&ticket).cloned() else { return };
        if let Some(replica) = self.replicas.run_mut(run) {
            replica.in_flight = replica.in_flight.saturating_sub(1);
            if why != Return::Withdrawn {
                replica.counters.lost += 1;
            }
            let until = now.saturating_add(self.bounds.suspect);
            match why {
                Return::Unreachable => replica.suspect_until = Some(until),
                Return::Failed => replica.failed(arrival.conversation, until),
                Return::BrokeOff | Return::Withdrawn => {}
            }
        }
        if let Some(conversation) = arrival.conversation {
            self.homes.unsettle(conversation, stayed);
        }
        let avoid = (why != Return::Withdrawn).then_some(run);
        self.queue.put(turn, Waiting { arrival, since, until: now.saturating_add(arrival.patience), avoid });
        self.open.insert(ticket, Open { turn, stand: Stand::Waits { class: arrival.class } });
        actions.push(Action::Requeue { ticket });
    }

    fn tick(&mut self, now: Moment, actions: &mut Vec<Action>) {
        for replica in self.replicas.iter_mut() {
            replica.lingering.retain(|until| now < *until);
        }
        if now.saturating_sub(self.swept) >= SWEEP {
            self.swept = now;
            self.homes.forget_idle(now, self.bounds.idle);
        }
        // Who can start now starts, even if the patience ended in this very moment.
        self.pump(now, actions);
        for (turn, ticket, class) in self.queue.over(now) {
            self.queue.take(class, turn);
            let retry_after = self.retry_after();
            self.refuse(ticket, Refusal::Expired { retry_after }, actions);
        }
    }

    /// Sends all that can be sent, in order, and refuses everybody when there is nowhere to send to.
    fn pump(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.queue.len() == 0 {
            return;
        }
        if self.replicas.offered().next().is_none() {
            let all: Vec<_> = self.queue.iter().map(|(turn, w)| (turn, w.arrival)).collect();
            for (turn, arrival) in all {
                self.queue.take(arrival.class, turn);
                self.refuse(arrival.ticket, Refusal::NoReplica, actions);
            }
            return;
        }
        while self.replicas.offered().any(|r| r.has_room(&self.bounds)) {
            let next = self.queue.iter().find_map(|(turn, w)| Some((turn, w.arrival, self.choose(w, now)?)));
            let Some((turn, arrival, run)) = next else { return };
            self.queue.take(arrival.class, turn);
            self.send(turn, arrival, run, now, actions);
        }
    }

    fn send(&mut self, turn: u64, arrival: Arrival, run: u64, now: Moment, actions: &mut Vec<Action>) {
        let before = arrival.conversation.and_then(|c| self.homes.of(c)).map(|h| h.run);
        let Some((id, replica)) = self.replicas.run(run) else { return };
        actions.push(Action::Dispatch { ticket: arrival.ticket, replica: id.clone(), launch: replica.launch.clone() });
        if let Some(conversation) = arrival.conversation {
            self.homes.settle(conversation, run, now, self.bounds.homes);
        }
        self.open.insert(arrival.ticket, Open { turn, stand: Stand::Runs { arrival, run, since: now, stayed: before == Some(run) } });
        if let Some(replica) = self.replicas.run_mut(run) {
            replica.in_flight += 1;
            let counters = &mut replica.counters;
            match (arrival.conversation, before) {
                (None, _) => counters.one_shots += 1,
                (Some(_), None) => counters.placed += 1,
                (Some(_), Some(home)) if home == run => counters.stayed += 1,
                (Some(_), Some(_)) => counters.moved += 1,
            }
        }
    }
}
