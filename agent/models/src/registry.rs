//! The registry itself: the port the api, the pages and serving use.
//!
//! In: wishes of an admin. Out: registered models in the store. File checks run on blocking threads; nothing is written unless every
//! check passed, and what is written is one row in one transaction.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind,
    change::{Changes, Topic},
    clock,
    ids::ModelId,
    model::{Candidate, FileLook, Layout, Model, ModelChange, ModelConfig, NewModel, Registry},
    share,
    storage::ModelDisks,
    units::Tokens,
};
use warden_store::{Store, models};

use crate::{
    candidates,
    download::unfinished,
    inspect::{Found, file_look, inspect},
    name,
    place::Places,
};

/// Slots when none are asked for.
const USUAL_SLOTS: u16 = 4;
const MOST_SLOTS: u16 = 64;
const SHORTEST_CONTEXT: u64 = 64;
const LONGEST_CONTEXT: u64 = 16 * 1024 * 1024;

/// Where models may lie.
#[derive(Clone, Debug)]
pub struct ModelsConfig {
    /// The models folder; relative paths start here and candidates are looked for here.
    pub models_dir: PathBuf,
    /// Further folders models may be registered from; empty on the appliance.
    pub allowed_roots: Vec<PathBuf>,
}

type InUse = Arc<dyn Fn(&ModelId) -> bool + Send + Sync>;

/// The registry over the store.
pub struct Models {
    store: Store,
    places: Places,
    changes: Changes,
    in_use: OnceLock<InUse>,
    disks: OnceLock<Arc<dyn ModelDisks>>,
}

impl Models {
    /// A registry over the store. Until `set_in_use` was called every model counts as not loaded.
    #[must_use]
    pub fn new(store: Store, config: ModelsConfig, changes: Changes) -> Arc<Self> {
        Arc::new(Self {
            store,
            places: Places::new(config.models_dir, config.allowed_roots),
            changes,
            in_use: OnceLock::new(),
            disks: OnceLock::new(),
        })
    }

    /// Tells how to learn whether a model is loaded or loading, so that it is not forgotten then. Only the first call counts.
    pub fn set_in_use(&self, in_use: impl Fn(&ModelId) -> bool + Send + Sync + 'static) {
        let _ = self.in_use.set(Arc::new(in_use));
    }

    /// Tells which recorded disks may hold models. Only the first call counts; until then there are none.
    pub fn set_disks(&self, disks: Arc<dyn ModelDisks>) {
        let _ = self.disks.set(disks);
    }

    /// The folders of this moment: the configured ones and those of recorded disks that are mounted.
    pub(crate) fn places(&self) -> Places {
        let roots = self.disks.get().map(|disks| disks.roots()).unwrap_or_default();
        self.places.with_disks(roots.into_iter().map(|root| root.path).collect())
    }

    async fn look_at(&self, path: PathBuf) -> Result<Found, Problem> {
        // A path on a disk that is not there is that, and not a spelling mistake.
        if let Some(problem) = self.disks.get().and_then(|disks| disks.absent(&path)) {
            return Err(problem);
        }
        let places = self.places();
        blocking(move || inspect(&places.resolve(&path)?)).await
    }
}

#[async_trait]
impl Registry for Models {
    async fn list(&self) -> Result<Vec<Model>, Problem> {
        Ok(self.store.read(models::list).await?)
    }

    async fn get(&self, id: &ModelId) -> Result<Model, Problem> {
        let wanted = id.clone();
        self.store.read(move |db| models::by_id(db, &wanted)).await?.ok_or_else(|| not_found(id))
    }

    async fn register(&self, new: NewModel) -> Result<Model, Problem> {
        if let Some(name) = &new.served_name {
            name::check(name)?;
        }
        let slots = slots(new.slots)?;
        context_is_sane(new.context)?;
        new.layout.check()?;
        let found = self.look_at(new.path).await?;
        heads_fit_the_cards(&found, &new.layout)?;
        context_fits_the_model(new.context, found.facts.trained_context)?;
        let served_name = new.served_name.unwrap_or_else(|| name::suggest(&found.path));
        let model = Model {
            id: ModelId::random(),
            created_at: clock::now(),
            config: ModelConfig { served_name, path: found.path, engine: found.engine, context: new.context, slots, layout: new.layout },
            facts: found.facts,
        };
        let row = model.clone();
        self.store
            .write(move |tx| models::insert(tx, &row))
            .await
            .map_err(|error| if error.is_taken() { name_taken(&model.config.served_name) } else { error.into() })?;
        self.changes.publish(Topic::Models);
        tracing::info!(model = %model.id, name = %model.config.served_name, "model registered");
        Ok(model)
    }

    async fn change(&self, id: &ModelId, change: ModelChange) -> Result<Model, Problem> {
        let model = self.get(id).await?;
        let config = change.applied_to(&model.config);
        slots(Some(config.slots))?;
        context_is_sane(config.context)?;
        context_fits_the_model(config.context, model.facts.trained_context)?;
        config.layout.check()?;
        // Where its disk is missing just now, the next load looks again.
        if config.layout != model.config.layout
            && let Ok(found) = self.look_at(config.path.clone()).await
        {
            heads_fit_the_cards(&found, &config.layout)?;
        }
        let (wanted, row) = (id.clone(), config.clone());
        if !self.store.write(move |tx| models::update(tx, &wanted, &row)).await? {
            return Err(not_found(id));
        }
        self.changes.publish(Topic::Models);
        tracing::info!(model = %id, name = %config.served_name, "settings of a model changed");
        Ok(Model { config, ..model })
    }

    async fn remove(&self, id: &ModelId) -> Result<(), Problem> {
        let model = self.get(id).await?;
        if self.in_use.get().is_some_and(|in_use| in_use(id)) {
            return Err(
                Problem::new(ProblemKind::Conflict, format!("The model {} is loaded or loading.", model.config.served_name)).hint("Unload it first.")
            );
        }
        let wanted = id.clone();
        if !self.store.write(move |tx| models::delete(tx, &wanted)).await? {
            return Err(not_found(id));
        }
        self.changes.publish(Topic::Models);
        tracing::info!(model = %id, name = %model.config.served_name, "model removed from the registry; its file stays");
        Ok(())
    }

    async fn candidates(&self) -> Result<Vec<Candidate>, Problem> {
        let registered: BTreeSet<PathBuf> = self.list().await?.into_iter().map(|model| model.config.path).collect();
        let places = self.places();
        blocking(move || {
            let unfinished = unfinished(places.models_dir());
            Ok(candidates::find(&places, &registered, &unfinished))
        })
        .await
    }

    async fn verify(&self, id: &ModelId) -> Result<(), Problem> {
        let model = self.get(id).await?;
        let found = self.look_at(model.config.path).await?;
        heads_fit_the_cards(&found, &model.config.layout)
    }

    async fn file_looks(&self) -> Result<Vec<(Model, FileLook)>, Problem> {
        let models = self.list().await?;
        blocking(move || Ok(models.into_iter().map(looked_at).collect())).await
    }
}

fn looked_at(model: Model) -> (Model, FileLook) {
    let look = file_look(&model.config.path, model.facts.size);
    (model, look)
}

pub(crate) fn slots(asked: Option<u16>) -> Result<u16, Problem> {
    match asked.unwrap_or(USUAL_SLOTS) {
        fine @ 1..=MOST_SLOTS => Ok(fine),
        other => Err(Problem::new(ProblemKind::Invalid, format!("{other} is not a number of requests a model can work on at the same time."))
            .hint(format!("Use 1 to {MOST_SLOTS}; {USUAL_SLOTS} is usual."))
            .param("slots")),
    }
}

pub(crate) fn context_is_sane(asked: Option<Tokens>) -> Result<(), Problem> {
    match asked {
        Some(Tokens(tokens)) if !(SHORTEST_CONTEXT..=LONGEST_CONTEXT).contains(&tokens) => {
            Err(Problem::new(ProblemKind::Invalid, format!("A context of {tokens} tokens cannot be used."))
                .hint(format!("Use {SHORTEST_CONTEXT} to {LONGEST_CONTEXT} tokens, or leave it out."))
                .param("context"))
        }
        _ => Ok(()),
    }
}

/// Beyond its training a model answers with nonsense, which reads like a broken appliance.
pub(crate) fn context_fits_the_model(asked: Option<Tokens>, trained: Option<Tokens>) -> Result<(), Problem> {
    match (asked, trained) {
        (Some(asked), Some(trained)) if asked > trained => Err(Problem::new(
            ProblemKind::Invalid,
            format!("The model was trained for {} tokens of context, and {} were asked for.", trained.0, asked.0),
        )
        .hint(format!("Use at most {}, or leave the context out.", trained.0))
        .param("context")),
        _ => Ok(()),
    }
}

/// An engine that cannot share out the heads of its model among its cards does not start.
fn heads_fit_the_cards(found: &Found, layout: &Layout) -> Result<(), Problem> {
    match found.heads.and_then(|heads| share::cannot_share_out(heads, layout.cards_of(0).len())) {
        None => Ok(()),
        Some(sentence) => Err(Problem::new(ProblemKind::Invalid, sentence).hint(share::HEADS_HINT).param("gpus")),
    }
}

fn name_taken(name: &str) -> Problem {
    Problem::new(ProblemKind::Conflict, format!("A model named {name} is registered already."))
        .hint("Give this one another name, or remove the other model first.")
        .param("served_model_name")
}

fn not_found(id: &ModelId) -> Problem {
    let shown: String = id.as_str().chars().filter(|c| !c.is_control()).take(60).collect();
    Problem::new(ProblemKind::NotFound, format!("There is no model with the id {shown}.")).hint("The list of models shows which there are.")
}

pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Problem::internal("Looking at the model's file broke off.")))
}
