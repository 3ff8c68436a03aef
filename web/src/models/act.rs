//! What can be done with one model: load, unload, remove; the last two after a question that says what it stops.

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use warden_domain::{
    Problem,
    ids::ModelId,
    model::{Model, StateWord},
};

use crate::{
    Web,
    ask::{self, Question},
    refusal::{refuse, role},
    respond,
    visit::Guest,
};

/// `POST /ui/models/{id}/load`
pub(crate) async fn load(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let outcome = if guest.may_change() { web.serving.load(&ModelId::from_stored(id)).await } else { Err(role(&guest)) };
    match outcome {
        Ok(()) => respond::done(),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `GET /ui/models/{id}/unload`: the question.
pub(crate) async fn ask_unload(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    match web.registry.get(&ModelId::from_stored(id)).await {
        Ok(model) => ask::show(&web, &guest, &headers, unload_question(&web, &guest, &model), None).await,
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/models/{id}/unload`
pub(crate) async fn unload(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let id = ModelId::from_stored(id);
    let outcome = if guest.may_change() { web.serving.unload(&id).await } else { Err(role(&guest)) };
    match outcome {
        Ok(()) => respond::done(),
        Err(problem) => again(&web, &guest, &headers, &id, unload_question, &problem).await,
    }
}

/// `GET /ui/models/{id}/reload`: the question.
pub(crate) async fn ask_reload(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    match web.registry.get(&ModelId::from_stored(id)).await {
        Ok(model) => ask::show(&web, &guest, &headers, reload_question(&web, &guest, &model), None).await,
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/models/{id}/reload`
pub(crate) async fn reload(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let id = ModelId::from_stored(id);
    let outcome = if guest.may_change() { web.serving.reload(&id).await.map(drop) } else { Err(role(&guest)) };
    match outcome {
        Ok(()) => respond::done(),
        Err(problem) => again(&web, &guest, &headers, &id, reload_question, &problem).await,
    }
}

/// `GET /ui/models/{id}/remove`: the question.
pub(crate) async fn ask_remove(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    match web.registry.get(&ModelId::from_stored(id)).await {
        Ok(model) => ask::show(&web, &guest, &headers, remove_question(&web, &guest, &model), None).await,
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/models/{id}/remove`
pub(crate) async fn remove(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let id = ModelId::from_stored(id);
    let outcome = if guest.is_admin() { web.registry.remove(&id).await } else { Err(role(&guest)) };
    match outcome {
        Ok(()) => {
            web.serving.caught_up().await;
            respond::go(&headers, "/ui/models")
        }
        Err(problem) => again(&web, &guest, &headers, &id, remove_question, &problem).await,
    }
}

async fn again(
    web: &Web,
    guest: &Guest,
    headers: &HeaderMap,
    id: &ModelId,
    question: fn(&Web, &Guest, &Model) -> Question,
    problem: &Problem,
) -> Response {
    match web.registry.get(id).await {
        Ok(model) => ask::show(web, guest, headers, question(web, guest, &model), Some(problem)).await,
        Err(gone) => refuse(web, guest.look, headers, &gone),
    }
}

fn unload_question(web: &Web, guest: &Guest, model: &Model) -> Question {
    let t = guest.look.lang.text();
    let name = &model.config.served_name;
    let running = web.serving.states().get(&model.id).is_none_or(|state| state.state == StateWord::Running);
    let in_flight = web.flights.of_model(&model.id) as u64;
    let (question, plan, verb) = if running {
        let flights = if in_flight == 0 { t.ask_unload_idle.to_owned() } else { t.ask_unload_running(in_flight) };
        (t.ask_unload(name), vec![flights, t.ask_unload_stop.to_owned(), t.ask_unload_keep.to_owned()], t.ask_unload_verb)
    } else {
        (t.ask_cancel_load(name), vec![t.ask_cancel_load_step.to_owned(), t.ask_unload_keep.to_owned()], t.ask_cancel_load_verb)
    };
    Question { url: format!("/ui/models/{}/unload", model.id), question, plan, verb, back: format!("/ui/models/{}", model.id) }
}

fn reload_question(web: &Web, guest: &Guest, model: &Model) -> Question {
    let t = guest.look.lang.text();
    let several = web.serving.states().get(&model.id).is_some_and(|state| state.replicas.len() > 1);
    Question {
        url: format!("/ui/models/{}/reload", model.id),
        question: t.ask_reload(&model.config.served_name),
        plan: vec![if several { t.ask_reload_rolling } else { t.ask_reload_restart }.to_owned()],
        verb: t.ask_reload_verb,
        back: format!("/ui/models/{}", model.id),
    }
}

/// `GET /ui/models/{id}/replicas/{number}/drain`: the question.
pub(crate) async fn ask_drain(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path((id, number)): Path<(String, u16)>) -> Response {
    match web.registry.get(&ModelId::from_stored(id)).await {
        Ok(model) => ask::show(&web, &guest, &headers, drain_question(&web, &guest, &model, number), None).await,
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/models/{id}/replicas/{number}/drain`
pub(crate) async fn drain(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path((id, number)): Path<(String, u16)>) -> Response {
    let id = ModelId::from_stored(id);
    let outcome = if guest.may_change() { web.serving.drain(&id, number).await } else { Err(role(&guest)) };
    match (outcome, web.registry.get(&id).await) {
        (Ok(()), _) => respond::done(),
        (Err(problem), Ok(model)) => ask::show(&web, &guest, &headers, drain_question(&web, &guest, &model, number), Some(&problem)).await,
        (Err(problem), Err(_)) => refuse(&web, guest.look, &headers, &problem),
    }
}

fn drain_question(web: &Web, guest: &Guest, model: &Model, number: u16) -> Question {
    let t = guest.look.lang.text();
    let states = web.serving.states();
    let replica = states.get(&model.id).and_then(|state| state.replicas.get(usize::from(number))).map(|replica| replica.id.to_string());
    Question {
        url: format!("/ui/models/{}/replicas/{number}/drain", model.id),
        question: t.ask_drain(replica.unwrap_or_else(|| format!("{} {number}", model.config.served_name))),
        plan: vec![t.ask_drain_step.to_owned(), t.ask_drain_back.to_owned()],
        verb: t.ask_drain_verb,
        back: format!("/ui/models/{}", model.id),
    }
}

fn remove_question(_: &Web, guest: &Guest, model: &Model) -> Question {
    let t = guest.look.lang.text();
    Question {
        url: format!("/ui/models/{}/remove", model.id),
        question: t.ask_remove(&model.config.served_name),
        plan: vec![t.ask_remove_forget.to_owned(), t.ask_remove_file(model.config.path.display()), t.ask_remove_usage.to_owned()],
        verb: t.ask_remove_verb,
        back: format!("/ui/models/{}", model.id),
    }
}
