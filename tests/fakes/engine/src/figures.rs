//! Slots and counters: who runs, who waits, what was done. They move while a request runs. One short lock, never held across a wait.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Milliseconds that one step of computing takes, for the figures.
const STEP_MS: u64 = 20;

/// See the module.
pub struct Figures {
    room: Arc<Semaphore>,
    context: u64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    slots: Vec<Option<Running>>,
    waiting: usize,
    prompt: u64,
    cached: u64,
    generated: u64,
    steps: u64,
    tasks: u64,
}

struct Running {
    task: u64,
    since: Instant,
    said: u64,
}

impl Running {
    /// Steps done so far: computing a prompt counts too.
    fn steps(&self) -> u64 {
        self.said + u64::try_from(self.since.elapsed().as_millis()).unwrap_or(0) / STEP_MS
    }
}

/// One request's slot; it is free again when this is dropped.
pub struct Slot {
    figures: Arc<Figures>,
    at: usize,
    _room: OwnedSemaphorePermit,
}

struct Waits<'a>(&'a Figures);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

impl Figures {
    /// So many slots, each with that window.
    pub fn new(slots: usize, context: u64) -> Arc<Self> {
        let inner = Inner { slots: (0..slots).map(|_| None).collect(), ..Inner::default() };
        Arc::new(Self { room: Arc::new(Semaphore::new(slots)), context, inner: Mutex::new(inner) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot; who drops this leaves the queue.
    pub async fn slot(self: &Arc<Self>) -> Option<Slot> {
        self.lock().waiting += 1;
        let waits = Waits(self);
        let room = Arc::clone(&self.room).acquire_owned().await.ok()?;
        drop(waits);
        let mut inner = self.lock();
        inner.tasks += 1;
        let running = Running { task: inner.tasks, since: Instant::now(), said: 0 };
        let at = inner.slots.iter().position(Option::is_none)?;
        inner.slots[at] = Some(running);
        drop(inner);
        Some(Slot { figures: Arc::clone(self), at, _room: room })
    }

    /// `/metrics`.
    pub fn metrics(&self) -> String {
        let inner = self.lock();
        let running: Vec<&Running> = inner.slots.iter().flatten().collect();
        let steps = inner.steps + running.iter().map(|r| r.steps()).sum::<u64>();
        let series = [
            ("prompt_tokens_total", inner.prompt),
            ("prompt_tokens_cached_total", inner.cached),
            ("tokens_predicted_total", inner.generated),
            ("n_decode_total", steps),
            ("requests_processing", running.len() as u64),
            ("requests_deferred", inner.waiting as u64),
        ];
        series.iter().map(|(name, value)| format!("# TYPE llamacpp:{name} counter\nllamacpp:{name} {value}\n")).collect()
    }

    /// `/slots`.
    pub fn slots(&self) -> Value {
        let inner = self.lock();
        let one = |(at, slot): (usize, &Option<Running>)| {
            let (task, said) = slot.as_ref().map_or((-1, 0), |r| (i64::try_from(r.task).unwrap_or(-1), r.said));
            json!({"id": at, "id_task": task, "n_ctx": self.context, "is_processing": slot.is_some(), "next_token": [{"n_decoded": said}]})
        };
        inner.slots.iter().enumerate().map(one).collect()
    }

    /// `/props`.
    pub fn properties(&self, model: &str, vision: bool) -> Value {
        let slots = self.lock().slots.len();
        json!({"default_generation_settings": {"n_ctx": self.context}, "total_slots": slots, "model_path": model, "model_alias": model,
            "chat_template": "{{ scripted }}", "build_info": "b11434-scripted", "modalities": {"vision": vision, "audio": false}})
    }
}

impl Slot {
    /// The prompt is computed.
    pub fn prompt(&self, tokens: u64, cached: u64) {
        let mut inner = self.figures.lock();
        inner.prompt += tokens.saturating_sub(cached);
        inner.cached += cached;
    }

    /// So many tokens more were said.
    pub fn said(&self, tokens: u64) {
        if let Some(Some(running)) = self.figures.lock().slots.get_mut(self.at) {
            running.said += tokens;
        }
    }

    /// Tokens said so far.
    pub fn so_far(&self) -> u64 {
        self.figures.lock().slots.get(self.at).and_then(Option::as_ref).map_or(0, |r| r.said)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut inner = self.figures.lock();
        if let Some(running) = inner.slots.get_mut(self.at).and_then(Option::take) {
            inner.steps += running.steps();
            inner.generated += running.said;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(figures: &Figures, name: &str) -> u64 {
        let page = figures.metrics();
        page.lines().find_map(|line| line.strip_prefix(&format!("llamacpp:{name} "))?.parse().ok()).unwrap()
    }

    #[tokio::test]
    async fn figures_move_while_a_request_runs_and_never_fall() {
        let figures = Figures::new(1, 64);
        let slot = figures.slot().await.unwrap();
        slot.prompt(10, 4);
        slot.said(3);
        let waiting = tokio::spawn({
            let figures = Arc::clone(&figures);
            async move { figures.slot().await.is_some() }
        });
        while value(&figures, "requests_deferred") == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            (value(&figures, "requests_processing"), value(&figures, "prompt_tokens_total"), value(&figures, "prompt_tokens_cached_total")),
            (1, 6, 4)
        );
        let before = value(&figures, "n_decode_total");
        assert!(before >= 3 && figures.slots()[0]["is_processing"] == true);
        drop(slot);
        assert!(waiting.await.unwrap() && value(&figures, "n_decode_total") >= before);
        assert_eq!((value(&figures, "requests_deferred"), value(&figures, "tokens_predicted_total")), (0, 3));
    }
}
