//! Joins the disks with what uses them: the registry of models, imports, API and pages.

use std::sync::Arc;

use warden_domain::{
    Problem,
    change::Changes,
    issue::Check,
    storage::{Imports, ModelDisks, Sources, Storage},
    tasks::Tasks,
};
use warden_models::{Importer, Models};
use warden_platform::storage::{Elsewhere, StorageRoom};
use warden_store::Store;
use warden_updater::Sticks;

use crate::config::{Config, Profile};

/// The ports of disks.
pub(crate) struct Disks {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) imports: Arc<dyn Imports>,
    pub(crate) disks: Arc<dyn ModelDisks>,
    pub(crate) tasks: Tasks,
    /// What the monitor asks of the disks.
    pub(crate) check: Arc<dyn Check>,
    sources: Arc<dyn Sources>,
}

impl Disks {
    /// On the appliance the disk manager's; on a development machine the owner's.
    pub(crate) async fn open(config: &Config, store: &Store, tasks: &Tasks, changes: &Changes, models: &Arc<Models>) -> Result<Self, Problem> {
        Ok(match config.profile {
            Profile::Appliance => Self::join(StorageRoom::start(store.clone(), tasks.clone(), changes.clone()).await?, config, store, tasks, models),
            Profile::Dev => Self::join(Arc::new(Elsewhere), config, store, tasks, models),
        })
    }

    fn join<R: Storage + Sources + ModelDisks + Check + 'static>(
        room: Arc<R>,
        config: &Config,
        store: &Store,
        tasks: &Tasks,
        models: &Arc<Models>,
    ) -> Self {
        models.set_disks(room.clone());
        let imports = Importer::new(room.clone(), room.clone(), models.clone(), store.clone(), config.models_dir(), tasks.clone());
        Self { storage: room.clone(), sources: room.clone(), disks: room.clone(), check: room, imports, tasks: tasks.clone() }
    }

    /// Where bundles on sticks are found.
    pub(crate) fn sticks(&self) -> Sticks {
        Sticks { storage: self.storage.clone(), sources: self.sources.clone() }
    }
}
