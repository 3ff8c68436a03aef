//! One download from its record to a registered model: room, files, registration, load.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use warden_domain::{
    Problem, ProblemKind, clock,
    download::DownloadState,
    ids::AccountId,
    model::{Layout, Model, NewModel, Registry},
    tasks::Task,
};
use warden_store::audit::{self, AuditRow};

use super::{
    disk,
    live::{Live, Wish},
    owner::{owner, real},
    part::aside,
    room::Inner,
    transfer::{Ended, Transfer, leftovers},
};
use crate::{hub::Repo, registry::blocking};

pub(crate) const KIND: &str = "download-model";
const STEPS: &[(&str, &str)] = &[
    ("check", "Check the room for it"),
    ("fetch", "Fetch it and compute its checksums"),
    ("register", "Register the model"),
    ("load", "Load the model"),
];
/// The task is told of progress at most so often.
const TOLD_EVERY_MS: u64 = 500;

/// Runs a download to its end, whatever that is, and writes the end down.
pub(crate) async fn run(inner: Arc<Inner>, live: Arc<Live>, by: Option<AccountId>) {
    let turn = tokio::select! {
        turn = inner.turn.lock() => Some(turn),
        () = live.stopped() => None,
    };
    let task = inner.tasks.begin(KIND, STEPS, true);
    live.task(task.id().clone());
    let outcome = match turn {
        None => Err(Ended::Stopped),
        Some(_turn) => {
            enter(&live, DownloadState::Running, None).await;
            tokio::select! {
                outcome = whole(&inner, &live, &task, by) => outcome,
                // The general way to end work stops a download like its own button does.
                () = cancelled(&task, &live) => Err(Ended::Stopped),
            }
        }
    };
    if task.cancelled() && live.wish() == Wish::Go {
        live.want(Wish::Cancel);
    }
    let (state, problem) = match outcome {
        Ok(()) => {
            enter(&live, DownloadState::Done, None).await;
            if live.wish() == Wish::Cancel {
                // It came too late for the model; the record goes.
                clear(&inner, &live).await;
            }
            return;
        }
        Err(Ended::Failed(problem)) => (DownloadState::Failed, Some(problem)),
        Err(Ended::Stopped) => (DownloadState::Paused, None),
    };
    if rest(&live, state, problem.clone()).await {
        if let Some(problem) = &problem {
            tracing::warn!(repo = live.record().repo, %problem, "a download failed");
        }
        task.fail(&problem.unwrap_or_else(|| stopped("It was paused; what is here stays.", "Resume it on the page of models.")));
    } else {
        task.fail(&stopped("It was cancelled; nothing unfinished of it is left.", "Begin it again when it is wanted."));
        clear(&inner, &live).await;
    }
}

fn stopped(sentence: &str, hint: &str) -> Problem {
    Problem::new(ProblemKind::Conflict, sentence).hint(hint)
}

async fn enter(live: &Arc<Live>, state: DownloadState, problem: Option<Problem>) {
    let live = live.clone();
    let _written_or_logged = blocking(move || {
        live.enter(state, problem.as_ref());
        Ok(())
    })
    .await;
}

async fn rest(live: &Arc<Live>, state: DownloadState, problem: Option<Problem>) -> bool {
    let live = live.clone();
    blocking(move || Ok(live.rest(state, problem.as_ref()))).await.unwrap_or(true)
}

/// Turns a cancelled task into a wish, and waits for the worker to heed it.
async fn cancelled(task: &Task, live: &Live) {
    let mut tick = tokio::time::interval(std::time::Duration::from_millis(250));
    loop {
        tick.tick().await;
        if task.cancelled() && live.wish() == Wish::Go {
            live.want(Wish::Cancel);
        }
    }
}

async fn whole(inner: &Inner, live: &Arc<Live>, task: &Task, by: Option<AccountId>) -> Result<(), Ended> {
    let record = live.record();
    task.step("check");
    let (needed, models_dir) = (record.needed(), inner.models_dir.clone());
    let unfinished = record.files.iter().filter(|file| !file.done);
    let damaged: Vec<PathBuf> = unfinished.map(|file| aside(&record.target(&models_dir, file))).collect();
    blocking(move || {
        // What came wrong the last time only takes the room of what comes now.
        for file in damaged {
            let _mostly_not_there = std::fs::remove_file(file);
        }
        if needed == 0 { Ok(()) } else { disk::check(needed, 0, disk::free(&models_dir)?, &models_dir) }
    })
    .await?;
    task.done("check");

    task.step("fetch");
    let size = record.size().0;
    let (began, told) = (Instant::now(), AtomicU64::new(0));
    let moved = |here: u64| {
        let now = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        if here >= size || now >= told.load(Ordering::Relaxed) {
            told.store(now.saturating_add(TOLD_EVERY_MS), Ordering::Relaxed);
            task.advance("fetch", here, size);
        }
    };
    let repo = Repo { name: record.repo.clone(), revision: record.revision.clone() };
    for (index, file) in record.files.iter().enumerate().filter(|(_, file)| !file.done) {
        let target = record.target(&inner.models_dir, file);
        let transfer =
            Transfer { hub: &inner.hub, live, repo: &repo, commit: &record.commit, index, file, target, rules: inner.rules, moved: &moved };
        transfer.run().await?;
    }
    task.done("fetch");

    task.step("register");
    let id = match record.model.clone() {
        Some(id) => id,
        None => register(inner, live, by).await?,
    };
    task.done("register");
    match inner.serving.get().filter(|_| record.load) {
        None => task.skip("load"),
        Some(serving) => {
            task.step("load");
            // The model is there; what keeps it from running is told on its own page.
            if let Err(problem) = serving.load(&id).await {
                tracing::warn!(model = %id, %problem, "a downloaded model cannot be loaded at once");
            }
            task.done("load");
        }
    }
    Ok(())
}

async fn register(inner: &Inner, live: &Arc<Live>, by: Option<AccountId>) -> Result<warden_domain::ids::ModelId, Ended> {
    let record = live.record();
    let path = record.model_path(&inner.models_dir);
    let new = NewModel {
        path: path.clone(),
        served_name: Some(record.served_name.clone()),
        context: record.context,
        slots: record.slots,
        layout: Layout { extra_args: record.arguments(), ..record.layout.clone() },
    };
    let model = match inner.registry.register(new).await {
        Ok(model) => model,
        Err(problem) => match registered_before(inner, &record.served_name, path.clone()).await {
            Some(model) if problem.kind == ProblemKind::Conflict => model,
            _ => {
                let hint = format!(
                    "The files are whole and lie at {}; they can be registered from there. {}",
                    path.display(),
                    problem.hint.clone().unwrap_or_default()
                );
                return Err(problem.hint(hint.trim_end().to_owned()).into());
            }
        },
    };
    let (kept, id) = (live.clone(), model.id.clone());
    blocking(move || kept.change(|record| record.model = Some(id))).await?;
    let subject = format!("{} from {} at {}", record.served_name, record.repo, record.commit);
    tracing::info!(model = %model.id, subject, "model downloaded");
    let row = AuditRow { at: clock::now(), account: by, action: "model.download", subject: Some(subject), outcome: "ok" };
    inner.store.write(move |tx| audit::insert(tx, &row)).await.map_err(Problem::from)?;
    Ok(model.id)
}

/// The model of this name and path: an agent that was killed after it registered one had no time to note it.
async fn registered_before(inner: &Inner, name: &str, path: PathBuf) -> Option<Model> {
    let model = inner.registry.list().await.ok()?.into_iter().find(|model| model.config.served_name == name)?;
    let path = blocking(move || Ok(real(&path))).await.ok()?;
    (model.config.path == path).then_some(model)
}

/// Removes what is unfinished, and the record.
pub(crate) async fn clear(inner: &Arc<Inner>, live: &Arc<Live>) {
    let (models_dir, kept) = (inner.models_dir.clone(), live.clone());
    let id = live.record().id;
    // Without the list nobody knows whose a file is, and none is removed.
    let models = inner.registry.list().await.ok();
    let cleared = blocking(move || {
        let record = kept.record();
        kept.forget()?;
        let folder = models_dir.join(&record.folder);
        let whole = record.files.iter().all(|file| file.done);
        for file in &record.files {
            let target = record.target(&models_dir, file);
            // Beside a file that has its name may lie the beginning of a later download.
            for left in leftovers(&target).into_iter().filter(|_| !file.done) {
                let _mostly_not_there = std::fs::remove_file(left);
            }
            let nobodys = models.as_ref().is_some_and(|models| owner(models, &target).is_none());
            if file.done && file.ours && !whole && nobodys {
                let _gone_already = std::fs::remove_file(&target);
            }
            for inside in target.ancestors().skip(1).take_while(|inside| inside.starts_with(&folder)) {
                let _only_when_empty = std::fs::remove_dir(inside);
            }
        }
        Ok(())
    })
    .await;
    if let Err(problem) = cleared {
        tracing::warn!(%problem, "what a cancelled download left cannot be removed");
    }
    inner.forget(&id);
}
