//! Files of registered models that are gone, or are not what they were. By directory entries alone, so that a look costs nothing.

use std::sync::Arc;

use async_trait::async_trait;
use warden_domain::{
    change::Topic,
    issue::{Check, Finding, IssueCode, Looked, Said},
    model::{FileLook, Model, Registry},
};

fn decide(looks: &[(Model, FileLook)]) -> Vec<Finding> {
    let of = |(model, look): &(Model, FileLook)| {
        let name = model.config.served_name.clone();
        let (code, said, hint) = match look {
            FileLook::Whole => return None,
            FileLook::Missing(why) => (
                IssueCode::ModelFileMissing,
                Said::ModelFileMissing { model: name, why: why.clone() },
                "Copy the file back to its place, or remove the model from the list.",
            ),
            FileLook::Changed { now } => (
                IssueCode::ModelFileChanged,
                Said::ModelFileChanged { model: name, now: now.0, before: model.facts.size.0 },
                "Copy the original file back. If the new file is wanted, remove the model from the list and add it again.",
            ),
        };
        Some(Finding { code, subject: model.id.to_string(), said, hint: hint.into(), fix: None })
    };
    looks.iter().filter_map(of).collect()
}

/// Looks at the files of all registered models.
pub(super) struct ModelFiles {
    pub(super) registry: Arc<dyn Registry>,
}

#[async_trait]
impl Check for ModelFiles {
    fn codes(&self) -> &'static [IssueCode] {
        &[IssueCode::ModelFileMissing, IssueCode::ModelFileChanged]
    }

    fn listens(&self) -> &'static [Topic] {
        &[Topic::Models]
    }

    async fn look(&self) -> Looked {
        match tokio::time::timeout(std::time::Duration::from_secs(5), self.registry.file_looks()).await {
            Ok(Ok(looks)) => Looked::Seen(decide(&looks)),
            Ok(Err(problem)) => Looked::NotChecked(problem.full_text()),
            Err(_) => Looked::NotChecked("The disk with the models did not answer within 5 s.".to_owned()),
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
        units::Bytes,
    };

    use super::*;

    #[test]
    fn a_lost_file_and_a_changed_file_are_told_apart() {
        let config = ModelConfig {
            served_name: "tiny".into(),
            path: "/m".into(),
            engine: EngineKind::LlamaCpp,
            context: None,
            slots: 1,
            layout: Layout::default(),
        };
        let facts = ModelFacts { size: Bytes(1024), ..ModelFacts::default() };
        let model = Model { id: ModelId::from_stored("mdl_1"), created_at: Timestamp::UNIX_EPOCH, config, facts };
        let looks = [
            (model.clone(), FileLook::Whole),
            (model.clone(), FileLook::Missing("/m does not exist.".into())),
            (model, FileLook::Changed { now: Bytes(2048) }),
        ];
        let found = decide(&looks);
        assert_eq!(found.iter().map(|f| f.code).collect::<Vec<_>>(), [IssueCode::ModelFileMissing, IssueCode::ModelFileChanged]);
        let said: Vec<String> = found.iter().map(|f| f.said.to_string()).collect();
        assert!(said[0].contains("/m does not exist") && said[1].contains("2048 bytes now; it had 1024"), "{said:?}");
    }
}
