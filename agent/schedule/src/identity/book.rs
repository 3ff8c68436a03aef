//! The conversations that are known, and which of them a request goes on with.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    time::Duration,
};

use warden_domain::units::Tokens;

use super::{Asked, hash};
use crate::event::{ConversationId, Moment};

/// Ends of earlier turns that a conversation is still known by.
const TIPS: usize = 6;
/// Conversations that are known by one and the same last turn: the same first words, said again and again. Those beyond cannot be told
/// apart anyway, and looking for one of them must not take longer the more there are.
const ALIKE: usize = 32;
/// Conversations without tools that wait to learn whether their session has a parent with tools.
const TOOLLESS: usize = 4;

/// Bounds of the book.
#[derive(Clone, Copy, Debug)]
pub struct Shelf {
    /// Most conversations kept.
    pub most: usize,
    /// One that was silent for so long is forgotten first.
    pub idle: Duration,
}

impl Default for Shelf {
    fn default() -> Self {
        Self { most: 8192, idle: Duration::from_secs(1800) }
    }
}

struct Talk {
    /// Hashes of its last turns' whole chains, the newest last.
    tips: Vec<u64>,
    owner: u64,
    scope: u64,
    tools: bool,
    busy: u32,
    /// Its last turn got its answer.
    answered: bool,
    used: Moment,
    tokens: Option<Tokens>,
}

#[derive(Default)]
struct Session {
    owner: u64,
    tools: bool,
    toolless: Vec<ConversationId>,
    used: Moment,
}

/// What the book says about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Its conversation; `None`: it belongs to none and leaves no trace.
    pub conversation: Option<ConversationId>,
    /// It goes on with one that was known.
    pub known: bool,
    /// Tokens its engine may still have of it.
    pub expected_cached: Option<Tokens>,
    /// Conversations that turn out to be none.
    pub forgotten: Vec<ConversationId>,
}

/// The book of one model.
pub struct Book {
    shelf: Shelf,
    talks: HashMap<ConversationId, Talk>,
    tips: HashMap<u64, Vec<ConversationId>>,
    sessions: HashMap<u64, Session>,
    next: u64,
}

impl Book {
    /// An empty book.
    #[must_use]
    pub fn new(shelf: Shelf) -> Self {
        Self { shelf, talks: HashMap::new(), tips: HashMap::new(), sessions: HashMap::new(), next: 0 }
    }

    /// Conversations known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.talks.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.talks.is_empty()
    }

    /// A request begins. What it belongs to is busy until `leave`.
    pub fn meet(&mut self, asked: &Asked, now: Moment) -> Met {
        if !asked.says_anything() || self.is_one_shot(asked) {
            return Met::default();
        }
        let mut forgotten = self.note_session(asked, now);
        let found = self.find(asked);
        let tip = hash::of(&(asked.scope, asked.chain.last().copied().unwrap_or(0)));
        let (id, known) = match found {
            Some(id) => (id, true),
            None => (self.open(asked, now), false),
        };
        let expected_cached = self.go_on(id, tip, asked, now).filter(|_| known);
        forgotten.extend(self.thin_out(tip));
        Met { conversation: Some(id), known, expected_cached, forgotten }
    }

    /// A request of it ended; `answered`: with a whole answer. `tokens`: prompt and answer together.
    pub fn leave(&mut self, id: ConversationId, answered: bool, tokens: Option<Tokens>, now: Moment) {
        if let Some(talk) = self.talks.get_mut(&id) {
            talk.busy = talk.busy.saturating_sub(1);
            (talk.answered, talk.used) = (answered, now);
            talk.tokens = tokens.or(talk.tokens);
        }
    }

    /// Without tools under a parent that has some: a title, a summary, a compaction.
    fn is_one_shot(&self, asked: &Asked) -> bool {
        if asked.tools {
            return false;
        }
        if asked.named {
            return self.sessions.get(&asked.scope).is_some_and(|s| s.tools);
        }
        // Without a session only a history tells: the longest one known belongs to those that brought tools, and to nobody else.
        let parents = self.links(asked).find_map(|(_, tip)| self.tips.get(&tip));
        !asked.opening && parents.is_some_and(|ids| ids.iter().filter_map(|id| self.talks.get(id)).all(|talk| talk.tools))
    }

    /// A request with tools makes what came before it without tools in its session a title.
    fn note_session(&mut self, asked: &Asked, now: Moment) -> Vec<ConversationId> {
        if !asked.named {
            return Vec::new();
        }
        if self.sessions.len() >= self.shelf.most && !self.sessions.contains_key(&asked.scope) {
            for scope in self.shelf.leaving(self.sessions.iter().map(|(scope, s)| (s.owner, s.used, *scope)), now) {
                self.sessions.remove(&scope);
            }
        }
        let session = self.sessions.entry(asked.scope).or_default();
        (session.owner, session.used) = (asked.owner, now);
        if !asked.tools || session.tools {
            return Vec::new();
        }
        session.tools = true;
        let titles = std::mem::take(&mut session.toolless);
        for id in &titles {
            self.drop_talk(*id);
        }
        titles
    }

    /// Its links as tips would be, the longest first, with how many messages lie behind each.
    fn links<'a>(&self, asked: &'a Asked) -> impl Iterator<Item = (usize, u64)> + 'a {
        let empty = asked.chain.is_empty().then(|| (0, hash::of(&(asked.scope, 0_u64))));
        let links = asked.chain.iter().rev().enumerate();
        links.map(|(cut, link)| (asked.messages - cut, hash::of(&(asked.scope, *link)))).chain(empty)
    }

    fn find(&self, asked: &Asked) -> Option<ConversationId> {
        // The same first words of two people are two conversations, unless the first never got its answer or both name one session.
        let again = |talk: &Talk| !asked.opening || asked.named || !talk.answered;
        let best = |fits: &dyn Fn(usize, u64, &Talk) -> bool| {
            self.links(asked).find_map(|(messages, tip)| {
                let all = self.tips.get(&tip).into_iter().flatten().filter_map(|id| Some((*id, self.talks.get(id)?)));
                let idle = all.filter(|(_, talk)| talk.busy == 0 && fits(messages, tip, talk));
                idle.max_by_key(|(_, talk)| talk.used).map(|(id, _)| id)
            })
        };
        let whole = asked.messages;
        let ends = |tip: u64, talk: &Talk| talk.tips.last() == Some(&tip);
        // A turn that got no answer comes again; a conversation goes on; the last turn is asked for anew; a message further back was rewritten.
        best(&|messages, tip, talk| ends(tip, talk) && messages == whole && !talk.answered)
            .or_else(|| best(&|messages, tip, talk| ends(tip, talk) && messages < whole))
            .or_else(|| best(&|messages, tip, talk| ends(tip, talk) && messages == whole && again(talk)))
            .or_else(|| best(&|messages, _, talk| again(talk) && (asked.named || messages * 2 > whole)))
    }

    fn open(&mut self, asked: &Asked, now: Moment) -> ConversationId {
        if self.talks.len() >= self.shelf.most {
            self.make_room(now);
        }
        self.next += 1;
        let id = ConversationId(self.next);
        let talk =
            Talk { tips: Vec::new(), owner: asked.owner, scope: asked.scope, tools: asked.tools, busy: 0, answered: false, used: now, tokens: None };
        self.talks.insert(id, talk);
        if asked.named
            && !asked.tools
            && let Some(session) = self.sessions.get_mut(&asked.scope)
            && session.toolless.len() < TOOLLESS
        {
            session.toolless.push(id);
        }
        id
    }

    /// Adds a turn and says how many tokens the conversation had before it.
    fn go_on(&mut self, id: ConversationId, tip: u64, asked: &Asked, now: Moment) -> Option<Tokens> {
        let own: HashSet<u64> = self.links(asked).map(|(_, tip)| tip).collect();
        let talk = self.talks.get_mut(&id)?;
        talk.used = now;
        talk.busy += 1;
        talk.answered = false;
        talk.tools |= asked.tools;
        // Turns that are not part of this history any more were rewritten.
        let (mut kept, mut gone): (Vec<u64>, Vec<u64>) = talk.tips.iter().copied().filter(|t| *t != tip).partition(|t| own.contains(t));
        kept.push(tip);
        if kept.len() > TIPS {
            gone.extend(kept.drain(..kept.len() - TIPS));
        }
        let fresh = !talk.tips.contains(&tip);
        talk.tips = kept;
        let tokens = talk.tokens;
        if fresh {
            self.tips.entry(tip).or_default().push(id);
        }
        for old in gone {
            self.unlink(old, id);
        }
        tokens
    }

    /// Where too many are known by one tip, the one that was silent longest is not known by it any more; if that was its last turn, it is
    /// forgotten.
    fn thin_out(&mut self, tip: u64) -> Option<ConversationId> {
        let alike = self.tips.get(&tip).filter(|ids| ids.len() > ALIKE)?;
        let idle = alike.iter().filter_map(|id| self.talks.get(id).filter(|talk| talk.busy == 0).map(|talk| (talk.used, *id)));
        let (_, id) = idle.min()?;
        let talk = self.talks.get_mut(&id)?;
        if talk.tips.last() == Some(&tip) {
            self.drop_talk(id);
            return Some(id);
        }
        talk.tips.retain(|other| *other != tip);
        self.unlink(tip, id);
        None
    }

    fn unlink(&mut self, tip: u64, id: ConversationId) {
        if let Some(ids) = self.tips.get_mut(&tip) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.tips.remove(&tip);
            }
        }
    }

    fn drop_talk(&mut self, id: ConversationId) {
        if let Some(talk) = self.talks.remove(&id) {
            for tip in talk.tips {
                self.unlink(tip, id);
            }
            if let Some(session) = self.sessions.get_mut(&talk.scope) {
                session.toolless.retain(|other| *other != id);
            }
        }
    }

    fn make_room(&mut self, now: Moment) {
        let idle = self.talks.iter().filter(|(_, t)| t.busy == 0);
        for id in self.shelf.leaving(idle.map(|(id, t)| (t.owner, t.used, *id)), now) {
            self.drop_talk(id);
        }
    }
}

impl Shelf {
    /// Which of these (whose, last use, what) are forgotten when the shelf is full: all that were silent for long, or a quarter of the shelf.
    /// The rest of that quarter is taken from whoever has most, the oldest first, so that nobody fills the shelf at the cost of others.
    fn leaving<T: Copy + Ord>(&self, all: impl Iterator<Item = (u64, Moment, T)>, now: Moment) -> Vec<T> {
        let all: Vec<(u64, Moment, T)> = all.collect();
        let mut held: HashMap<u64, usize> = HashMap::new();
        for (owner, ..) in &all {
            *held.entry(*owner).or_default() += 1;
        }
        let silent = |used: Moment| now.saturating_sub(used) >= self.idle;
        let rank = |(owner, used, what): (u64, Moment, T)| (!silent(used), Reverse(held.get(&owner).copied()), used, what);
        let mut order: Vec<_> = all.into_iter().map(rank).collect();
        order.sort_unstable();
        let quarter = (self.most / 4).max(1);
        order.into_iter().enumerate().filter(|(n, (fresh, ..))| *n < quarter || !fresh).map(|(_, (.., what))| what).collect()
    }
}
