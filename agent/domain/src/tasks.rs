//! Long work of this run of the agent, by id: whoever does the work holds a handle, pages and the API read copies.
//!
//! In memory only: work does not outlive the agent, and what it left half done is found again by looking at the thing itself. The oldest
//! finished tasks go when there are many.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool, atomic::Ordering},
};

use crate::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    clock,
    ids::TaskId,
    steps::{Progress, Steps},
};

/// Finished tasks kept for reading.
const KEPT: usize = 50;

struct Entry {
    number: u64,
    steps: Steps,
    cancel: Arc<AtomicBool>,
    cancellable: bool,
}

#[derive(Default)]
struct Board {
    entries: BTreeMap<TaskId, Entry>,
    next: u64,
}

/// All tasks; cheap to clone.
#[derive(Clone)]
pub struct Tasks {
    board: Arc<Mutex<Board>>,
    changes: Changes,
}

impl Tasks {
    /// No tasks yet.
    #[must_use]
    pub fn new(changes: Changes) -> Self {
        Self { board: Arc::default(), changes }
    }

    /// Puts new work on the board. `plan` gives key and title of each step.
    #[must_use]
    pub fn begin(&self, kind: &str, plan: &[(&str, &str)], cancellable: bool) -> Task {
        let id = TaskId::random();
        let cancel = Arc::new(AtomicBool::new(false));
        {
            let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
            board.next += 1;
            let entry = Entry { number: board.next, steps: Steps::new(kind, plan), cancel: cancel.clone(), cancellable };
            board.entries.insert(id.clone(), entry);
            board.forget_old();
        }
        self.changes.publish(Topic::Tasks);
        Task { id, cancel, tasks: self.clone() }
    }

    /// A copy of one task.
    ///
    /// # Errors
    /// `NotFound` when there is none, or it is long over.
    pub fn get(&self, id: &TaskId) -> Result<Steps, Problem> {
        let board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        board.entries.get(id).map(|entry| entry.steps.clone()).ok_or_else(|| no_task(id))
    }

    /// Copies of all, the newest first.
    #[must_use]
    pub fn list(&self) -> Vec<(TaskId, Steps)> {
        let board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = board.entries.iter().map(|(id, entry)| (entry.number, id.clone(), entry.steps.clone())).collect();
        all.sort_by_key(|(number, ..)| std::cmp::Reverse(*number));
        all.into_iter().map(|(_, id, steps)| (id, steps)).collect()
    }

    /// Asks a task to end at its next safe point.
    ///
    /// # Errors
    /// `NotFound`; `Conflict` when it is over, or of a kind that must not be broken off.
    pub fn cancel(&self, id: &TaskId) -> Result<(), Problem> {
        let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = board.entries.get_mut(id).ok_or_else(|| no_task(id))?;
        if entry.steps.over() {
            return Err(Problem::new(ProblemKind::Conflict, "This work is over already.").hint("Look at its steps for how it ended."));
        }
        if !entry.cancellable {
            return Err(Problem::new(ProblemKind::Conflict, "This work cannot be broken off without leaving a disk half done.")
                .hint("Wait until it is through."));
        }
        entry.steps.cancelling = true;
        entry.cancel.store(true, Ordering::Relaxed);
        drop(board);
        self.changes.publish(Topic::Tasks);
        Ok(())
    }

    /// A step of a task got further, in bytes.
    pub fn advance(&self, id: &TaskId, key: &str, done: u64, total: u64) {
        let progress = Progress { done, total: Some(total), unit: "B".to_owned() };
        self.with(id, |steps| steps.advance(key, progress));
    }

    fn with(&self, id: &TaskId, change: impl FnOnce(&mut Steps)) {
        {
            let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(entry) = board.entries.get_mut(id) {
                change(&mut entry.steps);
            }
        }
        self.changes.publish(Topic::Tasks);
    }
}

impl Board {
    fn forget_old(&mut self) {
        let mut over: Vec<_> = self.entries.iter().filter(|(_, entry)| entry.steps.over()).map(|(id, entry)| (entry.number, id.clone())).collect();
        over.sort();
        for (_, id) in over.iter().take(over.len().saturating_sub(KEPT)) {
            self.entries.remove(id);
        }
    }
}

fn no_task(id: &TaskId) -> Problem {
    let shown: String = id.as_str().chars().filter(|c| !c.is_control()).take(60).collect();
    Problem::new(ProblemKind::NotFound, format!("There is no task {shown}.")).hint("GET /api/tasks lists the work since the agent started.")
}

/// The hand that does the work.
pub struct Task {
    id: TaskId,
    cancel: Arc<AtomicBool>,
    tasks: Tasks,
}

impl Task {
    /// Its id.
    #[must_use]
    pub const fn id(&self) -> &TaskId {
        &self.id
    }

    /// Whether somebody asked to end it.
    #[must_use]
    pub fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// A step begins.
    pub fn step(&self, key: &str) {
        self.tasks.with(&self.id, |steps| steps.begin(key, clock::now()));
    }

    /// The flag behind `cancelled`, for a worker on another thread.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.cancel.clone()
    }

    /// The step got further, in bytes.
    pub fn advance(&self, key: &str, done: u64, total: u64) {
        self.tasks.advance(&self.id, key, done, total);
    }

    /// A step is done.
    pub fn done(&self, key: &str) {
        self.tasks.with(&self.id, |steps| steps.finish(key, clock::now()));
    }

    /// A step is not needed.
    pub fn skip(&self, key: &str) {
        self.tasks.with(&self.id, |steps| steps.skip(key));
    }

    /// The work stops here.
    pub fn fail(&self, problem: &Problem) {
        self.tasks.with(&self.id, |steps| steps.fail(problem, clock::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &[(&str, &str)] = &[("copy", "Copy")];

    #[test]
    fn a_task_can_be_followed_and_ends_where_its_worker_says() {
        let tasks = Tasks::new(Changes::new());
        let task = tasks.begin("import-model", PLAN, true);
        task.step("copy");
        task.advance("copy", 3, 10);
        assert_eq!(tasks.get(task.id()).unwrap().current().unwrap().progress.as_ref().unwrap().done, 3);
        task.done("copy");
        assert!(tasks.get(task.id()).unwrap().over());
        assert_eq!(tasks.cancel(task.id()).unwrap_err().kind, ProblemKind::Conflict);
    }

    #[test]
    fn formatting_cannot_be_cancelled_half_way() {
        let tasks = Tasks::new(Changes::new());
        let task = tasks.begin("adopt-disk", PLAN, false);
        assert_eq!(tasks.cancel(task.id()).unwrap_err().kind, ProblemKind::Conflict);
        assert!(!task.cancelled());
        let import = tasks.begin("import-model", PLAN, true);
        tasks.cancel(import.id()).unwrap();
        assert!(import.cancelled() && tasks.get(import.id()).unwrap().cancelling);
    }

    #[test]
    fn the_board_does_not_grow_for_ever_and_keeps_what_runs() {
        let tasks = Tasks::new(Changes::new());
        let running = tasks.begin("x", PLAN, true);
        for _ in 0..KEPT + 20 {
            let task = tasks.begin("x", PLAN, true);
            task.done("copy");
        }
        assert!(tasks.list().len() <= KEPT + 2);
        assert!(tasks.get(running.id()).is_ok());
    }
}
