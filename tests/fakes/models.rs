//! Models of a world, and engines that load them by the clock alone.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use warden_domain::{
    Problem, ProblemKind, clock,
    engine::{Capacity, EnginePack, Engines, Found, Launch, LoadView, Observation, ReplicaPlan, ReplicaSample},
    ids::{ModelId, ReplicaId},
    model::{Candidate, FileLook, Model, ModelChange, ModelState, NewModel, Registry, StateWord},
    replica::{Endpoint, InFlight, Reload, Replica, ReplicaTable, ServedModel, Serving},
    routing::{Routing, RoutingView},
    units::Tokens,
};

use super::{World, not_found, state_of};

#[async_trait]
impl Registry for World {
    async fn list(&self) -> Result<Vec<Model>, Problem> {
        Ok(self.memory.lock().unwrap().models.clone())
    }

    async fn get(&self, id: &ModelId) -> Result<Model, Problem> {
        self.memory.lock().unwrap().models.iter().find(|model| model.id == *id).cloned().ok_or_else(|| not_found("model", id.as_str()))
    }

    async fn register(&self, new: NewModel) -> Result<Model, Problem> {
        self.failing()?;
        let path = if new.path.is_absolute() { new.path.clone() } else { PathBuf::from("/data/models").join(&new.path) };
        let found = self.memory.lock().unwrap().candidates.iter().find(|candidate| candidate.path == path).cloned();
        let Some(candidate) = found else {
            return Err(Problem::new(ProblemKind::BadModelFile, format!("{} does not exist.", path.display()))
                .hint("Copy the file into the models folder and try again.")
                .param("path"));
        };
        let name = new.served_name.unwrap_or(candidate.suggested_name);
        if self.memory.lock().unwrap().models.iter().any(|model| model.config.served_name == name) {
            return Err(Problem::new(ProblemKind::Conflict, format!("There is a model named {name:?} already.")).hint("Give it another name."));
        }
        let id = self.add_model(&name, None, None);
        self.edit(|m| {
            m.candidates.retain(|candidate| candidate.path != path);
            let model = m.models.iter_mut().find(|model| model.id == id).unwrap();
            model.config.path = path;
            model.config.context = new.context;
            model.config.slots = new.slots.unwrap_or(4);
            model.config.layout = new.layout;
            model.created_at = clock::now();
            Ok(model.clone())
        })
    }

    async fn change(&self, id: &ModelId, change: ModelChange) -> Result<Model, Problem> {
        self.failing()?;
        let config = change.applied_to(&self.get(id).await?.config);
        config.layout.check()?;
        self.edit(|m| {
            let model = m.models.iter_mut().find(|model| model.id == *id).unwrap();
            model.config = config;
            Ok(model.clone())
        })
    }

    async fn remove(&self, id: &ModelId) -> Result<(), Problem> {
        self.failing()?;
        self.get(id).await?;
        if self.states().get(id).is_some_and(|state| !matches!(state.state, StateWord::Stopped | StateWord::Failed)) {
            return Err(Problem::new(ProblemKind::Conflict, "The model is loaded.").hint("Unload it first."));
        }
        self.edit(|m| {
            m.models.retain(|model| model.id != *id);
            m.states.remove(id);
        });
        Ok(())
    }

    async fn candidates(&self) -> Result<Vec<Candidate>, Problem> {
        Ok(self.memory.lock().unwrap().candidates.clone())
    }

    async fn verify(&self, id: &ModelId) -> Result<(), Problem> {
        self.get(id).await.map(drop)
    }

    async fn file_looks(&self) -> Result<Vec<(Model, FileLook)>, Problem> {
        Ok(self.memory.lock().unwrap().models.iter().map(|model| (model.clone(), FileLook::Whole)).collect())
    }
}

#[async_trait]
impl Serving for World {
    fn table(&self) -> Arc<ReplicaTable> {
        let memory = self.memory.lock().unwrap();
        let running = |model: &&Model| memory.states.get(&model.id).is_some_and(|state| state.state == StateWord::Running);
        let models = memory.models.iter().filter(running).map(|model| {
            let replica = Replica {
                id: ReplicaId::new("fake-1").unwrap(),
                launch: "launch".to_owned(),
                endpoint: Endpoint::Unix(PathBuf::from("/nowhere.sock")),
                capacity: Capacity::Unknown,
            };
            let served = ServedModel {
                id: model.id.clone(),
                served_name: model.config.served_name.clone(),
                engine: model.config.engine,
                context: Some(Tokens(4096)),
                created: model.created_at.as_second(),
                replicas: vec![replica],
            };
            (model.config.served_name.clone(), served)
        });
        Arc::new(ReplicaTable { models: models.collect() })
    }

    fn states(&self) -> Arc<BTreeMap<ModelId, ModelState>> {
        Arc::new(self.memory.lock().unwrap().states.clone())
    }

    async fn load(&self, id: &ModelId) -> Result<(), Problem> {
        self.failing()?;
        self.get(id).await?;
        if self.states().get(id).is_some_and(|state| matches!(state.state, StateWord::Running | StateWord::Loading)) {
            return Err(Problem::new(ProblemKind::Conflict, "The model is loaded or loading already."));
        }
        let mut loading = state_of(id, StateWord::Loading);
        loading.since = clock::now();
        let takes = self.edit(|m| {
            m.states.insert(id.clone(), loading);
            m.logs.insert(id.clone(), (1..=40).map(|n| format!("load_tensors: tensor {n} of 272 read")).collect());
            m.load_takes
        });
        let (world, id) = (self.clone(), id.clone());
        if let Some(takes) = takes {
            tokio::spawn(async move {
                tokio::time::sleep(takes).await;
                world.edit(|m| {
                    if m.states.get(&id).is_some_and(|state| state.state == StateWord::Loading) {
                        let mut running = state_of(&id, StateWord::Running);
                        running.since = clock::now();
                        m.states.insert(id, running);
                    }
                });
            });
        }
        Ok(())
    }

    async fn unload(&self, id: &ModelId) -> Result<(), Problem> {
        self.failing()?;
        self.get(id).await?;
        self.edit(|m| m.states.insert(id.clone(), ModelState::stopped(clock::now())));
        Ok(())
    }

    async fn reload(&self, id: &ModelId) -> Result<Reload, Problem> {
        self.failing()?;
        let model = self.get(id).await?;
        if self.states().get(id).is_none_or(|state| state.state != StateWord::Running) {
            return Err(Problem::new(ProblemKind::Conflict, "The model is not running.").hint("Load it."));
        }
        self.edit(|m| m.deeds.push(format!("reload {}", model.config.served_name)));
        Ok(if model.config.layout.replicas > 1 { Reload::Rolling } else { Reload::Restart { why: "it has one replica".to_owned() } })
    }

    async fn log_tail(&self, id: &ModelId, lines: usize) -> Result<Vec<String>, Problem> {
        self.get(id).await?;
        let log = self.memory.lock().unwrap().logs.get(id).cloned().unwrap_or_default();
        Ok(log[log.len().saturating_sub(lines)..].to_vec())
    }
}

impl InFlight for World {
    fn of_model(&self, id: &ModelId) -> usize {
        self.memory.lock().unwrap().flights.get(id).copied().unwrap_or(0)
    }

    fn of_replica(&self, id: &ModelId, _: &ReplicaId) -> usize {
        self.of_model(id)
    }
}

impl Routing for World {
    fn routing(&self, id: &ModelId) -> Option<RoutingView> {
        self.memory.lock().unwrap().routing.get(id).cloned()
    }
}

#[async_trait]
impl Engines for World {
    async fn packs(&self) -> Vec<EnginePack> {
        self.memory.lock().unwrap().packs.clone()
    }

    async fn start(&self, _: &ReplicaPlan) -> Result<Launch, Problem> {
        Err(Problem::internal("There is no engine in this world."))
    }

    async fn stop(&self, _: &ReplicaId) -> Result<(), Problem> {
        Ok(())
    }

    async fn running(&self) -> Result<Vec<Found>, Problem> {
        Ok(Vec::new())
    }

    async fn observe(&self, _: &Launch) -> Observation {
        Observation::Starting(LoadView::default())
    }

    async fn sample(&self, _: &Launch) -> Result<ReplicaSample, Problem> {
        Err(Problem::internal("There is no engine in this world."))
    }

    async fn log_tail(&self, _: &ReplicaId, _: usize) -> Vec<String> {
        Vec::new()
    }
}
