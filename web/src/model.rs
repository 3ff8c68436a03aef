//! One model as the pages show it: document and state together, with the actions that make sense now.

use jiff::Timestamp;
use warden_domain::model::{Model, ModelState, StateWord};

use crate::{
    Web,
    catalogue::Text,
    visit::Guest,
    wording::{self, Moment, Progress, StateView},
};

/// A model in a table row, in the wizard, or on its own page.
pub(crate) struct ModelView {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Title from the file, or architecture and size.
    pub(crate) title: String,
    pub(crate) state: StateView,
    /// When this state began; a model never asked to run has none.
    pub(crate) since: Option<Moment>,
    pub(crate) since_words: &'static str,
    pub(crate) context: String,
    pub(crate) slots: String,
    pub(crate) size: String,
    pub(crate) engine: String,
    pub(crate) in_flight: String,
    pub(crate) progress: Option<Progress>,
    /// Sentence and way out, for failed and waiting.
    pub(crate) reason: Option<(String, String)>,
    pub(crate) last_line: Option<String>,
    pub(crate) can_load: bool,
    pub(crate) can_unload: bool,
    pub(crate) can_remove: bool,
    pub(crate) unload_label: &'static str,
    pub(crate) load_url: String,
    pub(crate) unload_url: String,
    pub(crate) remove_url: String,
    pub(crate) chat_url: String,
}

/// Longest log line shown outside the log.
const LINE: usize = 300;

impl ModelView {
    pub(crate) fn of(web: &Web, guest: &Guest, model: &Model, state: Option<&ModelState>, now: Timestamp) -> Self {
        let in_flight = web.flights.of_model(&model.id) as u64;
        let view = Self::new(model, state, in_flight, guest.may_change(), guest.is_admin(), now, guest.look.lang.text());
        // A model whose disk is not there says so, whether it is wanted or not.
        let absent = || web.disks.absent(&model.config.path).map(|problem| (problem.message, problem.hint.unwrap_or_default()));
        Self { reason: view.reason.clone().or_else(absent), ..view }
    }

    fn new(model: &Model, state: Option<&ModelState>, in_flight: u64, may_change: bool, is_admin: bool, now: Timestamp, t: &Text) -> Self {
        let word = state.map_or(StateWord::Stopped, |s| s.state);
        let active = matches!(word, StateWord::Running | StateWord::Loading | StateWord::Waiting);
        let facts = &model.facts;
        let size = facts.size.to_string();
        let title = match (&facts.title, &facts.architecture) {
            (Some(title), _) => title.clone(),
            (None, Some(architecture)) => t.models_untitled(architecture, &size),
            (None, None) => model.config.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        };
        let context = state.and_then(|s| s.context).or(model.config.context);
        let progress = state.filter(|s| s.state == StateWord::Loading).map(|s| Progress {
            label: wording::phase(s.phase.as_deref(), t),
            figures: wording::elapsed(s.since, now),
            steps: None,
        });
        let url = |verb: &str| format!("/ui/models/{}/{verb}", model.id);
        Self {
            id: model.id.to_string(),
            name: model.config.served_name.clone(),
            title,
            state: StateView::of(word, t),
            since: state.map(|s| Moment::new(s.since, now, t)),
            since_words: since_words(word, t),
            context: wording::tokens(context),
            slots: model.config.slots.to_string(),
            size,
            engine: model.config.engine.as_str().to_owned(),
            in_flight: wording::grouped(in_flight),
            progress,
            reason: state.and_then(|s| s.reason.as_ref()).map(|reason| match &reason.hint {
                Some(hint) => (reason.message.clone(), hint.clone()),
                None => (StateView::of(word, t).label.to_owned(), reason.message.clone()),
            }),
            last_line: state
                .filter(|s| s.state != StateWord::Running)
                .and_then(|s| s.last_log_line.as_ref())
                .map(|line| line.chars().take(LINE).collect()),
            can_load: may_change && !active,
            can_unload: may_change && active,
            can_remove: is_admin && !active,
            unload_label: if word == StateWord::Running { t.models_unload } else { t.models_stop_loading },
            load_url: url("load"),
            unload_url: url("unload"),
            remove_url: url("remove"),
            chat_url: format!("/ui/chat?model={}", model.config.served_name),
        }
    }
}

const fn since_words(word: StateWord, t: &Text) -> &'static str {
    match word {
        StateWord::Running => t.detail_since_running,
        StateWord::Loading => t.detail_since_loading,
        StateWord::Waiting => t.detail_since_waiting,
        StateWord::Failed => t.detail_since_failed,
        StateWord::Stopped => t.detail_since_stopped,
    }
}

/// A first request to this box, ready for a terminal.
pub(crate) fn example(origin: &str, served_name: &str, key: &str, t: &Text) -> String {
    format!(
        "curl {origin}/v1/chat/completions \\\n  -H 'Authorization: Bearer {key}' \\\n  -H 'Content-Type: application/json' \\\n  -d '{{\"model\": \"{served_name}\", \"messages\": [{{\"role\": \"user\", \"content\": \"{}\"}}]}}'",
        t.home_prompt
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use warden_domain::{
        engine::EngineKind,
        ids::ModelId,
        model::{ModelConfig, ModelFacts},
    };

    use super::*;
    use crate::catalogue::EN;

    fn model() -> Model {
        let config = ModelConfig {
            served_name: "tiny".to_owned(),
            path: PathBuf::from("/m/tiny.gguf"),
            engine: EngineKind::LlamaCpp,
            context: None,
            slots: 4,
            layout: warden_domain::model::Layout::default(),
        };
        Model { id: ModelId::from_stored("mdl_1"), created_at: Timestamp::UNIX_EPOCH, config, facts: ModelFacts::default() }
    }

    fn state(word: StateWord) -> ModelState {
        ModelState { state: word, ..ModelState::stopped(Timestamp::UNIX_EPOCH) }
    }

    fn view(word: StateWord, may_change: bool, is_admin: bool) -> ModelView {
        ModelView::new(&model(), Some(&state(word)), 0, may_change, is_admin, Timestamp::UNIX_EPOCH, &EN)
    }

    #[test]
    fn a_running_model_can_be_unloaded_and_not_removed() {
        let running = view(StateWord::Running, true, true);
        assert!(running.can_unload && !running.can_load && !running.can_remove);
        let failed = view(StateWord::Failed, true, true);
        assert!(failed.can_load && failed.can_remove && !failed.can_unload);
    }

    #[test]
    fn a_viewer_is_offered_no_action() {
        for word in [StateWord::Running, StateWord::Stopped, StateWord::Loading] {
            let seen = view(word, false, false);
            assert!(!seen.can_load && !seen.can_unload && !seen.can_remove);
        }
    }

    #[test]
    fn an_unknown_context_is_a_dash() {
        assert_eq!(view(StateWord::Stopped, true, true).context, "–");
    }
}
