//! What needs a person now: decided from models, states, engines and keys. Pure apart from `look`, which reads the ports.

use std::collections::BTreeMap;

use warden_domain::{
    Problem,
    engine::{EnginePack, PackState},
    ids::ModelId,
    key::Key,
    model::{Model, ModelState, StateWord},
};

use crate::{Web, catalogue::Text};

/// One row of "needs you".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// `failed`, `waiting` or `next` (a step towards using the box, not a fault).
    pub(crate) kind: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) title: String,
    pub(crate) body: String,
    pub(crate) action: &'static str,
    pub(crate) href: String,
}

impl Need {
    /// Whether it counts as an issue in the strip.
    pub(crate) fn is_issue(&self) -> bool {
        self.kind != "next"
    }
}

/// Reads the ports and decides.
pub(crate) async fn look(web: &Web, models: &[Model], t: &'static Text) -> Result<Vec<Need>, Problem> {
    let keys = web.keys.list().await?;
    Ok(needs(models, &web.serving.states(), &web.engines.packs().await, &keys, t))
}

/// Faults first, then what waits, then next steps.
pub(crate) fn needs(models: &[Model], states: &BTreeMap<ModelId, ModelState>, packs: &[EnginePack], keys: &[Key], t: &'static Text) -> Vec<Need> {
    let mut found = Vec::new();
    for pack in packs {
        let engine = pack.engine.as_str();
        match &pack.state {
            PackState::Ready => {}
            PackState::Broken { message } => found.push(Need {
                kind: "failed",
                icon: "failed",
                title: t.need_engine(engine),
                body: message.clone(),
                action: t.need_engine_go,
                href: "/ui/models#engines".to_owned(),
            }),
            PackState::Building { .. } => found.push(Need {
                kind: "next",
                icon: "engine",
                title: t.need_building(engine),
                body: t.need_building_body.to_owned(),
                action: t.need_engine_go,
                href: "/ui/models#engines".to_owned(),
            }),
        }
    }
    // A model that waits for an engine in the making needs nobody: the engine's own row says what goes on.
    let building = packs.iter().any(|pack| matches!(pack.state, PackState::Building { .. }));
    for model in models {
        let Some(state) = states.get(&model.id) else { continue };
        let (kind, icon, title, action) = match state.state {
            StateWord::Failed => ("failed", "failed", t.need_failed(&model.config.served_name), t.need_failed_go),
            StateWord::Waiting if !building => ("waiting", "waiting", t.need_waiting(&model.config.served_name), t.need_waiting_go),
            _ => continue,
        };
        let body = state.reason.as_ref().map(|reason| reason.message.clone()).unwrap_or_default();
        found.push(Need { kind, icon, title, body, action, href: format!("/ui/models/{}", model.id) });
    }
    if models.is_empty() {
        found.push(next("models", t.need_model, t.need_model_body, t.need_model_go, "/ui/models/new"));
    }
    if keys.iter().all(|key| key.revoked_at.is_some()) {
        found.push(next("keys", t.need_key, t.need_key_body, t.need_key_go, "/ui/keys"));
    }
    found.sort_by_key(|need| ["failed", "waiting", "next"].iter().position(|kind| *kind == need.kind));
    found
}

fn next(icon: &'static str, title: &str, body: &str, action: &'static str, href: &str) -> Need {
    Need { kind: "next", icon, title: title.to_owned(), body: body.to_owned(), action, href: href.to_owned() }
}

#[cfg(test)]
mod tests {
    use warden_domain::engine::EngineKind;

    use super::*;
    use crate::catalogue::EN;

    #[test]
    fn a_fresh_box_names_its_next_steps_and_no_fault() {
        let needs = needs(&[], &BTreeMap::new(), &[], &[], &EN);
        assert_eq!(needs.len(), 2);
        assert!(needs.iter().all(|need| !need.is_issue()));
    }

    #[test]
    fn a_broken_engine_comes_before_next_steps_with_its_reason() {
        let packs = [EnginePack {
            engine: EngineKind::LlamaCpp,
            version: None,
            digest: None,
            state: PackState::Broken { message: "run `make engine`".to_owned() },
        }];
        let needs = needs(&[], &BTreeMap::new(), &packs, &[], &EN);
        assert_eq!(needs[0].kind, "failed");
        assert!(needs[0].body.contains("make engine"));
    }
}
