//! What was learnt of the hub, kept for a while and in bounded amount; and one turn per question, so that two people who ask for the same
//! thing ask the hub once, and nobody waits for what others ask for.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

struct Kept<V> {
    at: Instant,
    weight: usize,
    value: V,
}

/// Answers by question.
pub(super) struct Shelf<V> {
    kept: Mutex<HashMap<String, Kept<V>>>,
    /// Answers kept at most.
    most: usize,
    /// Their weights together at most.
    heaviest: usize,
    /// So long an answer is believed; `None`: for good.
    fresh: Option<Duration>,
}

impl<V: Clone> Shelf<V> {
    pub(super) fn new(most: usize, heaviest: usize, fresh: Option<Duration>) -> Self {
        Self { kept: Mutex::default(), most, heaviest, fresh }
    }

    pub(super) fn get(&self, question: &str) -> Option<V> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(question).filter(|kept| self.is_fresh(kept)).map(|kept| kept.value.clone())
    }

    /// Keeps an answer; the oldest ones make room. One that is too heavy by itself is not kept.
    pub(super) fn put(&self, question: String, weight: usize, value: V) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(&question);
        kept.retain(|_, kept| self.is_fresh(kept));
        if weight > self.heaviest {
            return;
        }
        while kept.len() >= self.most || kept.values().map(|kept| kept.weight).sum::<usize>() > self.heaviest - weight {
            let Some(oldest) = kept.iter().min_by_key(|(_, kept)| kept.at).map(|(question, _)| question.clone()) else { break };
            kept.remove(&oldest);
        }
        kept.insert(question, Kept { at: Instant::now(), weight, value });
    }

    pub(super) fn clear(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn is_fresh(&self, kept: &Kept<V>) -> bool {
        self.fresh.is_none_or(|fresh| kept.at.elapsed() < fresh)
    }
}

/// One turn per question.
#[derive(Default)]
pub(super) struct Turns(Mutex<HashMap<String, Weak<tokio::sync::Mutex<()>>>>);

impl Turns {
    /// The turn of a question; whoever holds it looks, the others wait and find the answer on the shelf.
    pub(super) fn of(&self, question: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(question).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(tokio::sync::Mutex::default());
        turns.insert(question.to_owned(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_number_nor_weight_grows_without_bound_and_the_oldest_goes_first() {
        let shelf = Shelf::new(3, 100, None);
        for (question, weight) in [("a", 10), ("b", 10), ("c", 10), ("d", 10)] {
            shelf.put(question.to_owned(), weight, question.to_owned());
        }
        assert_eq!((shelf.get("a"), shelf.get("b").as_deref(), shelf.get("d").as_deref()), (None, Some("b"), Some("d")));
        shelf.put("heavy".to_owned(), 85, "heavy".to_owned());
        assert_eq!((shelf.get("c"), shelf.get("d").is_some(), shelf.get("heavy").is_some()), (None, true, true));
        shelf.put("absurd".to_owned(), 101, "absurd".to_owned());
        assert_eq!((shelf.get("absurd"), shelf.get("heavy").is_some()), (None, true));
        shelf.clear();
        assert_eq!(shelf.get("d"), None);
    }

    #[test]
    fn an_answer_is_believed_only_so_long() {
        let shelf = Shelf::new(3, 100, Some(Duration::ZERO));
        shelf.put("a".to_owned(), 1, 7);
        assert_eq!(shelf.get("a"), None);
    }

    #[test]
    fn the_same_question_has_one_turn_and_another_question_another() {
        let turns = Turns::default();
        let (first, same, other) = (turns.of("a"), turns.of("a"), turns.of("b"));
        assert!(Arc::ptr_eq(&first, &same) && !Arc::ptr_eq(&first, &other));
        drop((first, same, other));
        let _third = turns.of("c");
        assert_eq!(turns.0.lock().unwrap().len(), 1, "turns that nobody holds are forgotten");
    }
}
