//! Engine packs as the pages show them.

use warden_domain::{
    engine::{EnginePack, PackState},
    model::{ModelState, StateWord},
};

use crate::{
    Web,
    catalogue::Text,
    wording::{Progress, StateView},
};

/// One engine: state, and progress while it is built.
pub(crate) struct EngineView {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// `ready`, `building` or `broken`.
    pub(crate) word: &'static str,
    pub(crate) state: StateView,
    pub(crate) progress: Option<Progress>,
    pub(crate) message: String,
    pub(crate) digest: Option<String>,
}

impl EngineView {
    pub(crate) fn of(pack: &EnginePack, t: &Text) -> Self {
        let name = pack.engine.as_str();
        let (word, state, progress, message) = match &pack.state {
            PackState::Ready => ("ready", StateView { word: "running", label: t.state_ready }, None, String::new()),
            PackState::Broken { message } => ("broken", StateView { word: "failed", label: t.state_broken }, None, message.clone()),
            PackState::Building { step, of, message } => {
                let steps = step.zip(*of).filter(|(step, of)| *of > 0 && step <= of);
                let figures = steps.map(|(step, of)| t.engine_steps(of, step)).unwrap_or_default();
                let progress = Progress { label: t.engine_building(name), figures, steps };
                ("building", StateView { word: "loading", label: t.state_building }, Some(progress), message.clone())
            }
        };
        let digest = pack.digest.as_ref().map(|digest| t.engine_digest(digest));
        Self { name, version: pack.version.clone().unwrap_or_default(), word, state, progress, message, digest }
    }
}

/// How far the engine of a waiting model is, while one is being built.
pub(crate) async fn awaited(web: &Web, state: Option<&ModelState>, t: &Text) -> Option<Progress> {
    if state?.state != StateWord::Waiting {
        return None;
    }
    web.engines.packs().await.iter().find_map(|pack| EngineView::of(pack, t).progress)
}

#[cfg(test)]
mod tests {
    use warden_domain::engine::EngineKind;

    use super::*;
    use crate::catalogue::EN;

    fn building(step: Option<u32>, of: Option<u32>) -> EngineView {
        let state = PackState::Building { step, of, message: "compiling".to_owned() };
        EngineView::of(&EnginePack { engine: EngineKind::LlamaCpp, version: None, digest: None, state }, &EN)
    }

    #[test]
    fn a_build_says_how_far_it_is() {
        let progress = building(Some(123), Some(208)).progress.unwrap();
        assert_eq!(progress.label, "llama.cpp is being built");
        assert_eq!(progress.figures, "123 of 208");
    }

    #[test]
    fn a_build_of_unknown_length_shows_no_invented_figure() {
        for (step, of) in [(None, None), (Some(1), None), (Some(3), Some(0)), (Some(9), Some(3))] {
            let progress = building(step, of).progress.unwrap();
            assert_eq!(progress.steps, None);
            assert_eq!(progress.figures, "");
        }
    }
}
