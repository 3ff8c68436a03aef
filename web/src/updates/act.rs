//! What the page of updates does. Each deed is the same call as its twin under `/api/updates`, noted in the same words.

use askama::Template;
use axum::{
    Form,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::Deserialize;
use warden_domain::{
    Problem, ProblemKind,
    units::Bytes,
    update::{Automatic, Stick, UpdateSettings, Window},
};

use crate::{
    Web,
    ask::{self, Question},
    catalogue::Text,
    refusal::{refuse, role},
    respond,
    visit::Guest,
};

#[derive(Template)]
#[template(path = "system/going.html")]
struct Going {
    t: &'static Text,
    word: &'static str,
    title: &'static str,
    body: &'static str,
}

/// Does a deed for an admin and notes it.
async fn noted<T>(
    web: &Web,
    guest: &Guest,
    action: &'static str,
    subject: Option<String>,
    deed: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    if !guest.is_admin() {
        return Err(role(guest));
    }
    let done = deed.await;
    web.audit.note(&guest.principal, action, subject, if done.is_ok() { "ok" } else { "refused" }).await?;
    done
}

fn answer<T>(web: &Web, guest: &Guest, headers: &HeaderMap, done: Result<T, Problem>) -> Response {
    match done {
        Ok(_) if respond::is_htmx(headers) => respond::done(),
        Ok(_) => respond::see_other("/ui/updates"),
        Err(problem) => refuse(web, guest.look, headers, &problem),
    }
}

/// `POST /ui/updates/check`
pub(crate) async fn check(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let done = if guest.is_admin() { web.updates.check().await } else { Err(role(&guest)) };
    answer(&web, &guest, &headers, done)
}

/// `POST /ui/updates/cancel`
pub(crate) async fn cancel(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let done = noted(&web, &guest, "updates.cancel", None, web.updates.cancel()).await;
    answer(&web, &guest, &headers, done)
}

/// `POST /ui/updates/continue`: goes on with what waits.
pub(crate) async fn go_on(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let deed = async {
        let sha256 = web.updates.view().await.attempt.map(|attempt| attempt.sha256);
        web.updates.install(sha256.as_deref()).await
    };
    let done = noted(&web, &guest, "updates.install", None, deed).await;
    answer(&web, &guest, &headers, done)
}

/// `GET /ui/updates/install/{sha256}`: the question.
pub(crate) async fn ask_install(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(sha256): Path<String>) -> Response {
    match install_question(&web, &guest, &sha256).await {
        Ok(question) => ask::show(&web, &guest, &headers, question, None).await,
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/updates/install/{sha256}`
pub(crate) async fn install(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(sha256): Path<String>) -> Response {
    match noted(&web, &guest, "updates.install", Some(sha256.clone()), web.updates.install(Some(&sha256))).await {
        Ok(_) => respond::go(&headers, "/ui/updates"),
        Err(problem) => match install_question(&web, &guest, &sha256).await {
            Ok(question) => ask::show(&web, &guest, &headers, question, Some(&problem)).await,
            Err(gone) => refuse(&web, guest.look, &headers, &gone),
        },
    }
}

async fn install_question(web: &Web, guest: &Guest, sha256: &str) -> Result<Question, Problem> {
    let t = guest.look.lang.text();
    let view = web.updates.view().await;
    let offer = view.offers.iter().find(|offer| offer.sha256 == sha256);
    let offer = offer.ok_or_else(|| Problem::new(ProblemKind::NotFound, t.updates_gone))?;
    let system = offer.kind == "os";
    let mut plan = vec![t.updates_plan_fetch(offer.bytes)];
    if let Some(why) = &offer.failed_before {
        plan.insert(0, why.clone());
    }
    if system {
        let last = if view.cannot_install.is_some() { t.updates_plan_stays } else { t.updates_plan_slot };
        plan.extend([last.to_owned(), t.updates_plan_restart.to_owned()]);
    } else {
        plan.push(t.updates_plan_add.to_owned());
    }
    Ok(Question {
        url: format!("/ui/updates/install/{sha256}"),
        question: t.updates_install_ask(&offer.name, &offer.version),
        plan,
        verb: if system { t.updates_install } else { t.updates_add },
        back: "/ui/updates".to_owned(),
    })
}

/// `GET /ui/updates/restart`: the question.
pub(crate) async fn ask_restart(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    ask::show(&web, &guest, &headers, restart_question(&web, &guest).await, None).await
}

/// `POST /ui/updates/restart`
pub(crate) async fn restart(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let t = guest.look.lang.text();
    match noted(&web, &guest, "updates.restart", None, web.updates.restart()).await {
        Ok(()) => going(t),
        Err(problem) => ask::show(&web, &guest, &headers, restart_question(&web, &guest).await, Some(&problem)).await,
    }
}

async fn restart_question(web: &Web, guest: &Guest) -> Question {
    let t = guest.look.lang.text();
    Question {
        url: "/ui/updates/restart".to_owned(),
        question: t.updates_restart_ask.to_owned(),
        plan: vec![requests(web, t).await, t.updates_plan_trial.to_owned(), t.updates_plan_back.to_owned()],
        verb: t.updates_restart,
        back: "/ui/updates".to_owned(),
    }
}

/// `GET /ui/updates/go-back`: the question.
pub(crate) async fn ask_back(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    ask::show(&web, &guest, &headers, back_question(&web, &guest).await, None).await
}

/// `POST /ui/updates/go-back`
pub(crate) async fn back(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let t = guest.look.lang.text();
    match noted(&web, &guest, "updates.go-back", None, web.updates.go_back()).await {
        Ok(()) => going(t),
        Err(problem) => ask::show(&web, &guest, &headers, back_question(&web, &guest).await, Some(&problem)).await,
    }
}

async fn back_question(web: &Web, guest: &Guest) -> Question {
    let t = guest.look.lang.text();
    let view = web.updates.view().await;
    let other = view.slots.iter().find(|slot| !slot.running).and_then(|slot| slot.version.clone());
    Question {
        url: "/ui/updates/go-back".to_owned(),
        question: t.updates_back_ask(other.as_deref().unwrap_or(crate::wording::UNKNOWN)),
        plan: vec![requests(web, t).await, t.updates_plan_data.to_owned(), t.updates_plan_not_again.to_owned()],
        verb: t.updates_back,
        back: "/ui/updates".to_owned(),
    }
}

async fn requests(web: &Web, t: &'static Text) -> String {
    let models = web.registry.list().await.unwrap_or_default();
    let running: u64 = models.iter().map(|model| web.flights.of_model(&model.id) as u64).sum();
    if running == 0 { t.system_requests_none.to_owned() } else { t.system_requests(running) }
}

fn going(t: &'static Text) -> Response {
    respond::html(StatusCode::ACCEPTED, &Going { t, word: "update", title: t.system_going_reboot, body: t.updates_going })
}

/// What the settings form sends.
#[derive(Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    channel_url: String,
    #[serde(default)]
    channel: String,
    #[serde(default)]
    automatic: String,
    #[serde(default)]
    window_from: String,
    #[serde(default)]
    window_to: String,
    #[serde(default)]
    rate: String,
}

impl Wanted {
    fn settings(&self, t: &Text) -> Result<UpdateSettings, Problem> {
        let wrong = |words: &str| Problem::new(ProblemKind::Invalid, words);
        let (from, to) = (self.window_from.trim(), self.window_to.trim());
        let window = match (from, to) {
            ("", "") => None,
            _ => Some(Window::parse(from, to).ok_or_else(|| wrong(t.updates_window_wrong))?),
        };
        let rate_limit = match self.rate.trim() {
            "" => None,
            text => Some(Bytes(text.parse::<u64>().map_err(|_| wrong(t.updates_rate_wrong))?.saturating_mul(1024))),
        };
        let url = self.channel_url.trim();
        Ok(UpdateSettings {
            channel_url: (!url.is_empty()).then(|| url.to_owned()),
            channel: self.channel.trim().to_owned(),
            automatic: Automatic::from_word(&self.automatic).unwrap_or_default(),
            window,
            rate_limit,
        })
    }
}

/// `POST /ui/updates`: saves the settings.
pub(crate) async fn save(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(wanted): Form<Wanted>) -> Response {
    let t = guest.look.lang.text();
    let deed = async { web.updates.configure(wanted.settings(t)?).await };
    match noted(&web, &guest, "updates.configure", None, deed).await {
        Ok(_) => respond::go(&headers, "/ui/updates"),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/updates/uploads/{id}/take`
pub(crate) async fn take(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let done = noted(&web, &guest, "updates.take-upload", Some(id.clone()), web.updates.take_upload(&id, false)).await;
    answer(&web, &guest, &headers, done)
}

/// `POST /ui/updates/uploads/{id}/drop`
pub(crate) async fn throw_away(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let done = noted(&web, &guest, "updates.drop-upload", Some(id.clone()), web.updates.drop_upload(&id)).await;
    answer(&web, &guest, &headers, done)
}

/// `POST /ui/updates/sticks/{key}`
pub(crate) async fn stick(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(key): Path<String>) -> Response {
    let done = noted(&web, &guest, "updates.from-stick", Some(key.clone()), web.updates.take_from_stick(Stick::Disk(key), false)).await;
    answer(&web, &guest, &headers, done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::EN;

    fn form(from: &str, to: &str, rate: &str) -> Result<UpdateSettings, Problem> {
        let wanted = Wanted {
            channel_url: "  ".into(),
            channel: " stable ".into(),
            automatic: "install".into(),
            window_from: from.into(),
            window_to: to.into(),
            rate: rate.into(),
        };
        wanted.settings(&EN)
    }

    #[test]
    fn an_empty_form_asks_nobody_and_has_no_limits() {
        let settings = form("", "", "").unwrap();
        assert_eq!((settings.channel_url, settings.window, settings.rate_limit), (None, None, None));
        assert_eq!((settings.channel.as_str(), settings.automatic), ("stable", Automatic::Install));
        assert_eq!(form("02:00", "05:00", "512").unwrap().rate_limit, Some(Bytes(512 * 1024)));
    }

    #[test]
    fn half_a_window_and_a_rate_in_words_are_told() {
        assert_eq!(form("02:00", "", "").unwrap_err().kind, ProblemKind::Invalid);
        assert_eq!(form("", "", "fast").unwrap_err().kind, ProblemKind::Invalid);
    }
}
