//! `/ui/models/{id}/settings`: window, slots, replicas, cards and arguments of a model.

use askama::Template;
use axum::{
    Form,
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use serde::Deserialize;
use warden_domain::{
    Problem,
    ids::{GpuId, ModelId},
    model::{ModelChange, ModelConfig, RunawayGuard},
    units::Tokens,
};

use crate::{
    Web,
    assets::url,
    catalogue::Text,
    field::{Choice, Field},
    models::{detail::joined, new::number},
    refusal::{self, refuse},
    respond,
    shell::Shell,
    visit::Guest,
};

#[derive(Template)]
#[template(path = "models/settings.html")]
struct Settings {
    page: Shell,
    name: String,
    heading: String,
    lead: &'static str,
    url: String,
    back: String,
    fields: Vec<Field>,
    on_request: bool,
    /// Its engine could run code that lies beside the model.
    trust_offered: bool,
    trust: bool,
    runaway: Choice,
}

/// What the form sends; all of it text, checked here.
#[derive(Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    context: String,
    #[serde(default)]
    slots: String,
    #[serde(default)]
    replicas: String,
    #[serde(default)]
    gpus: String,
    #[serde(default)]
    extra_args: String,
    /// A checkbox: there when it is ticked.
    on_request: Option<String>,
    /// The same.
    trust_remote_code: Option<String>,
    #[serde(default)]
    runaway_guard: String,
}

impl Wanted {
    /// The change this asks for. An empty window means the usual one; an empty number of slots or replicas leaves it.
    fn into_change(self, t: &Text) -> Result<ModelChange, Problem> {
        Ok(ModelChange {
            context: Some(number::<u64>(&self.context, t.new_context, t)?.map(Tokens)),
            slots: number(&self.slots, t.new_slots, t)?,
            replicas: number(&self.replicas, t.new_replicas, t)?,
            gpus: Some(words(&self.gpus, |word| GpuId::from_stored(word))),
            extra_args: Some(words(&self.extra_args, str::to_owned)),
            on_request: Some(self.on_request.is_some()),
            trust_remote_code: Some(self.trust_remote_code.is_some()),
            runaway: Some(self.runaway_guard.as_str()).filter(|word| !word.is_empty()).map(RunawayGuard::from_word).transpose()?,
        })
    }
}

fn words<T>(text: &str, each: impl Fn(&str) -> T) -> Vec<T> {
    text.split_whitespace().map(each).collect()
}

fn fields(config: &ModelConfig, t: &'static Text) -> Vec<Field> {
    let layout = &config.layout;
    vec![
        Field::text("replicas", t.new_replicas).hint(t.new_replicas_hint).value(layout.replicas.to_string()),
        Field::text("slots", t.new_slots).hint(t.new_slots_hint).value(config.slots.to_string()),
        Field::text("context", t.new_context)
            .hint(t.new_context_hint)
            .optional(t.new_optional)
            .value(config.context.map(|tokens| tokens.0.to_string()).unwrap_or_default()),
        Field::text("gpus", t.new_gpus).hint(t.new_gpus_hint).optional(t.new_optional).code().value(joined(layout.gpus.iter()).unwrap_or_default()),
        Field::text("extra_args", t.new_extra_args)
            .hint(t.new_extra_args_hint)
            .optional(t.new_optional)
            .code()
            .value(joined(layout.extra_args.iter()).unwrap_or_default()),
    ]
}

fn runaway(now: RunawayGuard, t: &'static Text) -> Choice {
    let label = |guard| match guard {
        RunawayGuard::Off => t.settings_runaway_off,
        RunawayGuard::Log => t.settings_runaway_log,
        RunawayGuard::Enforce => t.settings_runaway_enforce,
    };
    let options = RunawayGuard::ALL.map(|guard| (guard.as_str(), label(guard))).to_vec();
    Choice { id: "runaway_guard", label: t.settings_runaway, chosen: now.as_str().to_owned(), options }
}

/// `GET /ui/models/{id}/settings`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let t = guest.look.lang.text();
    let made = async {
        if !guest.is_admin() {
            return Err(refusal::role(&guest));
        }
        let model = web.registry.get(&ModelId::from_stored(id)).await?;
        let runs = web.serving.states().get(&model.id).is_some_and(|state| state.loaded.is_some());
        let name = model.config.served_name.clone();
        let heading = t.settings_title(&name);
        Ok(Settings {
            page: Shell::new(&web, &guest, &heading, "/ui/live/strip").await?,
            heading,
            lead: if runs { t.settings_lead_running } else { t.settings_lead_stopped },
            url: format!("/ui/models/{}/settings", model.id),
            back: format!("/ui/models/{}", model.id),
            fields: fields(&model.config, t),
            on_request: model.config.layout.on_request,
            trust_offered: model.config.engine.check_trust().is_ok(),
            trust: model.config.layout.trust_remote_code,
            runaway: runaway(model.config.layout.runaway, t),
            name,
        })
    };
    match made.await {
        Ok(settings) => respond::page(&settings),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/models/{id}/settings`
pub(crate) async fn submit(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>, Form(wanted): Form<Wanted>) -> Response {
    let id = ModelId::from_stored(id);
    let saved = async {
        if !guest.is_admin() {
            return Err(refusal::role(&guest));
        }
        let change = wanted.into_change(guest.look.lang.text())?;
        let engine = web.registry.get(&id).await?.config.engine;
        web.engines.check_arguments(engine, change.extra_args.as_deref().unwrap_or_default())?;
        // Only a person who is signed in comes here.
        if change.trust_remote_code == Some(true) {
            engine.check_trust()?;
            tracing::warn!(model = %id, "code that lies beside a model may run");
        }
        let model = web.registry.change(&id, change).await?;
        web.serving.caught_up().await;
        Ok(model)
    };
    match saved.await {
        Ok(model) => respond::go(&headers, &format!("/ui/models/{}", model.id)),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::EN;

    fn wanted(context: &str, gpus: &str) -> Wanted {
        Wanted {
            context: context.to_owned(),
            slots: String::new(),
            replicas: " 2 ".to_owned(),
            gpus: gpus.to_owned(),
            extra_args: "--flash-attn  on".to_owned(),
            on_request: None,
            trust_remote_code: None,
            runaway_guard: String::new(),
        }
    }

    #[test]
    fn what_is_left_empty_is_the_usual_window_and_no_change_of_a_number() {
        let change = wanted("", "GPU-a  GPU-b").into_change(&EN).unwrap();
        assert_eq!((change.context, change.slots, change.replicas), (Some(None), None, Some(2)));
        assert_eq!(change.gpus.unwrap().len(), 2);
        assert_eq!(change.trust_remote_code, Some(false), "what is not ticked is not trusted");
        assert_eq!((change.extra_args.unwrap(), change.on_request), (vec!["--flash-attn".to_owned(), "on".to_owned()], Some(false)));
        assert!(wanted("long", "").into_change(&EN).unwrap_err().message.contains("Context window"));
    }
}
