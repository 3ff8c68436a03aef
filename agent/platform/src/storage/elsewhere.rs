//! A machine whose disks are its owner's business: nothing is listed, nothing can be done. Stands in on a development machine, so that
//! pages and API say so instead of pretending.

use std::path::Path;

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind,
    ids::{AccountId, DiskId, TaskId},
    storage::{Adoption, AdoptionPlan, ModelDisks, ModelRoot, OpenSource, Overview, Sources, Storage},
};

/// No disks of ours.
#[derive(Clone, Copy, Debug, Default)]
pub struct Elsewhere;

fn not_here() -> Problem {
    Problem::new(ProblemKind::SystemService, "Disks are managed on the appliance only; this machine's disks belong to its owner.")
        .hint("Put models into the models folder.")
}

#[async_trait]
impl Storage for Elsewhere {
    async fn overview(&self) -> Result<Overview, Problem> {
        Ok(Overview { elsewhere: true, ..Overview::default() })
    }

    async fn plan(&self, _: &str) -> Result<AdoptionPlan, Problem> {
        Err(not_here())
    }

    async fn adopt(&self, _: &AccountId, _: Adoption) -> Result<TaskId, Problem> {
        Err(not_here())
    }

    async fn forget(&self, _: &AccountId, _: &DiskId) -> Result<(), Problem> {
        Err(not_here())
    }
}

#[async_trait]
impl Sources for Elsewhere {
    async fn open(&self, _: &str) -> Result<OpenSource, Problem> {
        Err(not_here())
    }

    async fn close(&self, _: &OpenSource) {}
}

impl ModelDisks for Elsewhere {
    fn roots(&self) -> Vec<ModelRoot> {
        Vec::new()
    }

    fn absent(&self, _: &Path) -> Option<Problem> {
        None
    }
}
