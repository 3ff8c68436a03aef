//! Downloads on the page of models: how far each is, and its buttons.

use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::Response,
};
use jiff::Timestamp;
use warden_domain::{
    Problem,
    download::{Download, DownloadState},
    ids::DownloadId,
};

use crate::{
    Web,
    ask::{self, Question},
    catalogue::Text,
    refusal::{refuse, role},
    respond,
    visit::Guest,
    wording::{Progress, StateView},
};

/// A download in its panel.
pub(crate) struct DownloadView {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) from: String,
    pub(crate) state: StateView,
    pub(crate) bar: Option<Progress>,
    pub(crate) reason: Option<(String, String)>,
    pub(crate) pause_url: String,
    pub(crate) resume_url: String,
    pub(crate) cancel_url: String,
    pub(crate) cancel_label: &'static str,
    pub(crate) model_url: String,
}

/// Finished ones are shown so many; their models are in the list above.
const DONE_SHOWN: usize = 2;

/// The downloads a page shows.
pub(crate) fn views(all: &[Download], may: bool, now: Timestamp, t: &'static Text) -> Vec<DownloadView> {
    let mut done = 0;
    let shown = all.iter().filter(|download| {
        done += usize::from(download.state == DownloadState::Done);
        download.state != DownloadState::Done || done <= DONE_SHOWN
    });
    shown.map(|download| view(download, may, now, t)).collect()
}

fn view(download: &Download, may: bool, now: Timestamp, t: &'static Text) -> DownloadView {
    let (word, label) = match download.state {
        DownloadState::Queued => ("waiting", t.hub_queued),
        DownloadState::Running => ("loading", t.hub_running),
        DownloadState::Waiting => ("waiting", t.state_waiting),
        DownloadState::Paused => ("stopped", t.hub_paused),
        DownloadState::Failed => ("failed", t.state_failed),
        DownloadState::Done => ("running", t.storage_done),
    };
    let runs = matches!(download.state, DownloadState::Queued | DownloadState::Running | DownloadState::Waiting);
    let stands = matches!(download.state, DownloadState::Paused | DownloadState::Failed);
    let url = |yes: bool, verb: &str| if may && yes { format!("/ui/models/downloads/{}/{verb}", download.id) } else { String::new() };
    let mut reason = download.reason.as_ref().filter(|_| download.state != DownloadState::Done).map(|problem| match &problem.hint {
        Some(hint) => (problem.message.clone(), hint.clone()),
        None => (label.to_owned(), problem.message.clone()),
    });
    if let (Some((_, body)), Some(until)) = (&mut reason, download.waits_until) {
        let seconds = u64::try_from(until.as_second() - now.as_second()).unwrap_or(0);
        *body = t.hub_goes_on(body.clone(), seconds);
    }
    DownloadView {
        id: download.id.to_string(),
        name: download.served_name.clone(),
        from: format!("{} · {}", download.repo, download.commit.chars().take(12).collect::<String>()),
        state: StateView { word, label },
        bar: (download.state != DownloadState::Done).then(|| bar(download, t)),
        reason,
        pause_url: url(runs, "pause"),
        resume_url: url(stands, "resume"),
        cancel_url: url(true, "cancel"),
        cancel_label: if download.state == DownloadState::Done { t.hub_forget } else { t.ui_cancel },
        model_url: download.model.as_ref().map(|id| format!("/ui/models/{id}")).unwrap_or_default(),
    }
}

fn bar(download: &Download, t: &'static Text) -> Progress {
    let per_mille = download.done.0.saturating_mul(1000).checked_div(download.size.0).map_or(0, |n| u32::try_from(n).unwrap_or(1000));
    let mut figures = t.storage_bytes_of(download.done, download.size);
    if let Some(rate) = download.rate {
        figures = format!("{figures} · {rate}/s");
    }
    if let Some(seconds) = download.seconds_left {
        figures = format!("{figures} · {}", t.hub_left(length(seconds)));
    }
    Progress { label: t.hub_fetching.to_owned(), figures, steps: Some((per_mille, 1000)) }
}

fn length(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} m {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} m", seconds / 3_600, seconds % 3_600 / 60),
    }
}

fn answer(web: &Web, guest: &Guest, headers: &HeaderMap, outcome: Result<(), Problem>) -> Response {
    match outcome {
        Ok(()) => respond::done(),
        Err(problem) => refuse(web, guest.look, headers, &problem),
    }
}

/// `POST /ui/models/downloads/{id}/pause`
pub(crate) async fn pause(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let id = DownloadId::from_stored(id);
    let outcome = if guest.is_admin() { web.downloads.pause(&id).await.map(drop) } else { Err(role(&guest)) };
    answer(&web, &guest, &headers, outcome)
}

/// `POST /ui/models/downloads/{id}/resume`
pub(crate) async fn resume(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let id = DownloadId::from_stored(id);
    let outcome = if guest.is_admin() { web.downloads.resume(&id).await.map(drop) } else { Err(role(&guest)) };
    answer(&web, &guest, &headers, outcome)
}

/// `GET /ui/models/downloads/{id}/cancel`: the question.
pub(crate) async fn ask_cancel(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    match web.downloads.get(&DownloadId::from_stored(id)).await {
        Ok(download) => ask::show(&web, &guest, &headers, question(&guest, &download), None).await,
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/models/downloads/{id}/cancel`
pub(crate) async fn cancel(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let outcome = if guest.is_admin() { web.downloads.cancel(&DownloadId::from_stored(id)).await } else { Err(role(&guest)) };
    answer(&web, &guest, &headers, outcome)
}

fn question(guest: &Guest, download: &Download) -> Question {
    let t = guest.look.lang.text();
    let done = download.state == DownloadState::Done;
    Question {
        url: format!("/ui/models/downloads/{}/cancel", download.id),
        question: if done { t.hub_ask_forget(&download.served_name) } else { t.hub_ask_cancel(&download.served_name) },
        plan: vec![if done { t.hub_ask_forget_keeps.to_owned() } else { t.hub_ask_cancel_removes(download.done) }],
        verb: if done { t.hub_forget } else { t.hub_ask_cancel_verb },
        back: "/ui/models".to_owned(),
    }
}
