//! Models that should run and do not.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use warden_domain::{
    change::Topic,
    engine::{EnginePack, Engines, PackState},
    ids::ModelId,
    issue::{Check, Finding, Fix, IssueCode, Looked, Said},
    model::{Model, ModelState, Registry, StateWord},
    replica::Serving,
};

/// Stands where no cause was seen.
const NO_REASON: &str = "Nothing says why.";

fn decide(models: &[Model], states: &BTreeMap<ModelId, ModelState>, packs: &[EnginePack]) -> Vec<Finding> {
    let mut found = Vec::new();
    for model in models {
        let Some(state) = states.get(&model.id) else { continue };
        // An engine in the making needs nobody: the model loads by itself when it is done.
        let coming = packs.iter().any(|pack| pack.engine == model.config.engine && matches!(pack.state, PackState::Building { .. }));
        let reason = state.reason.as_ref();
        let (name, why) = (model.config.served_name.clone(), reason.map_or_else(|| NO_REASON.to_owned(), |reason| reason.message.clone()));
        let (code, said, fix) = match state.state {
            StateWord::Failed => (IssueCode::ModelFailed, Said::ModelFailed { model: name, why }, Some(Fix::LoadModel(model.id.clone()))),
            StateWord::Waiting if !coming => (IssueCode::ModelWaiting, Said::ModelWaiting { model: name, why }, None),
            _ => continue,
        };
        let hint = reason.and_then(|reason| reason.hint.clone()).unwrap_or_else(|| "Look at the model's log, then load it again.".to_owned());
        found.push(Finding { code, subject: model.id.to_string(), said, hint, fix });
    }
    found
}

/// Looks at what is wanted and what runs.
pub(super) struct Models {
    pub(super) registry: Arc<dyn Registry>,
    pub(super) serving: Arc<dyn Serving>,
    pub(super) engines: Arc<dyn Engines>,
}

#[async_trait]
impl Check for Models {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::ModelFailed, IssueCode::ModelWaiting]
    }

    fn listens(&self) -> &'static [Topic] {
        &[Topic::Models, Topic::Engines]
    }

    async fn look(&self) -> Looked {
        match self.registry.list().await {
            Ok(models) => Looked::Seen(decide(&models, &self.serving.states(), &self.engines.packs().await)),
            Err(problem) => Looked::NotChecked(problem.full_text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use warden_domain::{
        engine::EngineKind,
        model::{Layout, ModelConfig, ModelFacts, StateReason},
    };

    use super::*;

    fn in_state(word: StateWord, packs: &[EnginePack]) -> Vec<Finding> {
        let id = ModelId::from_stored("mdl_1");
        let config = ModelConfig {
            served_name: "tiny".into(),
            path: "/m".into(),
            engine: EngineKind::LlamaCpp,
            context: None,
            slots: 1,
            layout: Layout::default(),
        };
        let model = Model { id: id.clone(), created_at: Timestamp::UNIX_EPOCH, config, facts: ModelFacts::default() };
        let mut state = ModelState::stopped(Timestamp::UNIX_EPOCH);
        state.state = word;
        state.reason = Some(StateReason { code: "engine_killed".into(), message: "The engine was killed.".into(), hint: Some("Load it.".into()) });
        decide(&[model], &BTreeMap::from([(id, state)]), packs)
    }

    #[test]
    fn a_dead_engine_is_told_with_its_reason_and_can_be_loaded_again_with_one_click() {
        let found = in_state(StateWord::Failed, &[]);
        assert_eq!(found[0].code, IssueCode::ModelFailed);
        assert_eq!(found[0].said.to_string(), "The model tiny failed. The engine was killed.");
        assert_eq!(found[0].fix, Some(Fix::LoadModel(ModelId::from_stored("mdl_1"))));
    }

    #[test]
    fn a_model_nobody_wants_or_that_is_on_its_way_is_no_issue() {
        for word in [StateWord::Stopped, StateWord::Loading, StateWord::Running] {
            assert!(in_state(word, &[]).is_empty());
        }
    }

    #[test]
    fn a_model_that_waits_for_an_engine_in_the_making_needs_nobody() {
        let state = PackState::Building { step: None, of: None, message: "compiling".into() };
        let pack = EnginePack { engine: EngineKind::LlamaCpp, version: None, digest: None, state };
        assert!(in_state(StateWord::Waiting, &[pack]).is_empty());
        assert_eq!(in_state(StateWord::Waiting, &[])[0].code, IssueCode::ModelWaiting);
    }
}
