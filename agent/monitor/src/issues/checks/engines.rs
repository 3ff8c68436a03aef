//! Engines that a registered model needs and that cannot be used.

use std::sync::Arc;

use async_trait::async_trait;
use warden_domain::{
    change::Topic,
    engine::{EnginePack, Engines, PackState},
    issue::{Check, Finding, IssueCode, Looked, Said},
    model::{Model, Registry},
};

fn decide(models: &[Model], packs: &[EnginePack]) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for model in models {
        let engine = model.config.engine;
        let mut mine = packs.iter().filter(|pack| pack.engine == engine).peekable();
        let usable = |pack: &EnginePack| !matches!(pack.state, PackState::Broken { .. });
        if found.iter().any(|f| f.subject == engine.as_str()) || mine.clone().any(usable) {
            continue;
        }
        let (engine, model) = (engine.as_str().to_owned(), model.config.served_name.clone());
        let subject = engine.clone();
        let said = match mine.peek().map(|pack| &pack.state) {
            Some(PackState::Broken { message }) => Said::EngineBroken { engine, model, why: message.clone() },
            _ => Said::EngineNotInstalled { engine, model },
        };
        found.push(Finding {
            code: IssueCode::EngineMissing,
            subject,
            said,
            hint: "Install a signed engine pack. On a development machine: make engine.".to_owned(),
            fix: None,
        });
    }
    found
}

/// Looks at engines and at who needs them.
pub(super) struct EnginePacks {
    pub(super) registry: Arc<dyn Registry>,
    pub(super) engines: Arc<dyn Engines>,
}

#[async_trait]
impl Check for EnginePacks {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::EngineMissing]
    }

    fn listens(&self) -> &'static [Topic] {
        &[Topic::Engines, Topic::Models]
    }

    async fn look(&self) -> Looked {
        match self.registry.list().await {
            Ok(models) => Looked::Seen(decide(&models, &self.engines.packs().await)),
            Err(problem) => Looked::NotChecked(problem.full_text()),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use warden_domain::{
        engine::EngineKind,
        ids::ModelId,
        model::{Layout, ModelConfig, ModelFacts},
    };

    use super::*;

    fn model() -> Model {
        let config = ModelConfig {
            served_name: "tiny".into(),
            path: "/m".into(),
            engine: EngineKind::LlamaCpp,
            context: None,
            slots: 1,
            layout: Layout::default(),
        };
        Model { id: ModelId::from_stored("mdl_1"), created_at: Timestamp::UNIX_EPOCH, config, facts: ModelFacts::default() }
    }

    fn pack(state: PackState) -> EnginePack {
        EnginePack { engine: EngineKind::LlamaCpp, version: None, digest: None, state }
    }

    #[test]
    fn an_engine_that_nobody_needs_is_no_issue() {
        assert!(decide(&[], &[pack(PackState::Broken { message: "gone".into() })]).is_empty());
    }

    #[test]
    fn a_broken_engine_is_told_once_with_its_reason_however_many_models_need_it() {
        let found = decide(&[model(), model()], &[pack(PackState::Broken { message: "No file there.".into() })]);
        assert_eq!(found.len(), 1);
        let said = found[0].said.to_string();
        assert!(said.contains("tiny") && said.contains("No file there."), "{said}");
    }

    #[test]
    fn one_usable_version_is_enough() {
        assert!(decide(&[model()], &[pack(PackState::Broken { message: "old".into() }), pack(PackState::Ready)]).is_empty());
        assert_eq!(decide(&[model()], &[]).len(), 1);
    }
}
