//! Joins the hub of models with what it needs: settings, registry, folder, cards.

use std::sync::Arc;

use warden_domain::{Problem, change::Changes, gpu::Gpus, tasks::Tasks};
use warden_models::{Downloader, DownloaderParts, HubParts, HubRoom, Models, Rules};
use warden_store::Store;

use crate::config::Config;

/// Models by name.
pub(crate) struct ByName {
    pub(crate) hub: Arc<HubRoom>,
    pub(crate) downloads: Arc<Downloader>,
}

impl ByName {
    /// Opens both; downloads go on when they are started.
    pub(crate) async fn open(
        config: &Config,
        store: &Store,
        models: &Arc<Models>,
        tasks: &Tasks,
        changes: &Changes,
        gpus: Arc<dyn Gpus>,
        version: &'static str,
    ) -> Result<Self, Problem> {
        let parts = HubParts { store: store.clone(), state_dir: config.state_dir.clone(), endpoint: config.hub_endpoint.clone(), gpus, version };
        let hub = HubRoom::open(parts).await?;
        let downloads = Downloader::open(DownloaderParts {
            hub: hub.clone(),
            registry: models.clone(),
            store: store.clone(),
            models_dir: config.models_dir(),
            tasks: tasks.clone(),
            changes: changes.clone(),
            rules: Rules { stall: config.download_stall, ..Rules::default() },
        })
        .await?;
        Ok(Self { hub, downloads })
    }
}
