//! `/ui/updates`: where the update stands, what is offered, what happened, what is set; live. Deeds are in `act`, words in `words`.

pub(crate) mod act;
mod words;

use askama::Template;
use axum::{extract::State, http::HeaderMap, response::Response};
use jiff::Timestamp;
use warden_domain::{
    Problem, clock,
    storage::Role,
    update::{Automatic, Offer, Reaches, SlotView, UpdatePhase, UpdateView},
};

use crate::{
    Web,
    assets::url,
    catalogue::Text,
    field::{Choice, Field},
    refusal::refuse,
    respond,
    shell::Shell,
    visit::Guest,
    wording::{self, Moment, Progress, StateView},
};

/// Lines of history on the page.
const SHOWN: usize = 8;

struct OfferView {
    what: String,
    size: String,
    state: StateView,
    when: String,
    notes: String,
    why: String,
    install_url: String,
    verb: &'static str,
}

struct FailedView {
    version: String,
    reason: String,
    at: Moment,
    again_url: String,
}

struct HistoryView {
    what: String,
    state: StateView,
    at: Moment,
    why: String,
}

struct UploadView {
    name: String,
    figures: String,
    whole: bool,
    take_url: String,
    drop_url: String,
}

struct CheckView {
    state: StateView,
    sentence: String,
}

/// What may be done with the attempt at work.
#[derive(Default)]
struct Deeds {
    install: bool,
    restart: bool,
    cancel: bool,
}

#[derive(Template)]
#[template(path = "updates/page.html", blocks = ["live"])]
pub(crate) struct Page {
    page: Shell,
    may: bool,
    notices: Vec<(&'static str, &'static str, String)>,
    facts: Vec<(&'static str, String)>,
    back: bool,
    check: bool,
    checked: Option<Moment>,
    attempt: String,
    phase: StateView,
    steps: Vec<(StateView, String)>,
    bar: Option<Progress>,
    deeds: Deeds,
    gate: Vec<CheckView>,
    offers: Vec<OfferView>,
    no_offer: (&'static str, &'static str),
    failed: Vec<FailedView>,
    history: Vec<HistoryView>,
    uploads: Vec<UploadView>,
    fields: Vec<Field>,
    automatic: Choice,
    /// What a status without a sentence means; for the upload's script.
    status: String,
    /// Address and label of each.
    sticks: Vec<(String, String)>,
}

impl Page {
    pub(crate) async fn look(web: &Web, guest: &Guest) -> Result<Self, Problem> {
        let t = guest.look.lang.text();
        let now = clock::now();
        let may = guest.is_admin();
        let view = web.updates.view().await;
        let overview = web.storage.overview().await.unwrap_or_default();
        let sticks = overview.disks.into_iter().filter(|disk| disk.importable && disk.removable && disk.role != Role::System);
        let installs = view.cannot_install.is_none();
        let at_work = !matches!(view.phase, UpdatePhase::Idle | UpdatePhase::Confirmed | UpdatePhase::RolledBack);
        Ok(Self {
            notices: notices(&view, t),
            facts: facts(&view, now, t),
            back: may
                && !matches!(view.phase, UpdatePhase::Installing | UpdatePhase::Staged | UpdatePhase::Trial)
                && view.slots.iter().any(|slot| !slot.running && slot.good == Some(true)),
            check: may && view.settings.channel_url.is_some(),
            checked: view.checked_at.map(|at| Moment::new(at, now, t)),
            attempt: view.attempt.as_ref().filter(|_| at_work).map(|a| t.updates_attempt(&a.from, &a.version)).unwrap_or_default(),
            phase: words::phase(view.phase, t),
            steps: if at_work { words::steps(view.phase, t) } else { Vec::new() },
            bar: bar(&view, t),
            deeds: if may { deeds(&view) } else { Deeds::default() },
            gate: view.gate.iter().map(|check| CheckView { state: words::check(check.outcome, t), sentence: check.sentence.clone() }).collect(),
            offers: view.offers.iter().filter(|offer| shown(offer)).map(|o| offer(o, &view, may, now, t)).collect(),
            no_offer: match (&view.settings.channel_url, view.release) {
                (None, None) => (t.updates_no_channel, t.updates_no_channel_body),
                (_, None) => (t.updates_not_asked, t.updates_not_asked_body),
                (_, Some(_)) => (t.updates_nothing, t.updates_nothing_body),
            },
            failed: view
                .failed
                .iter()
                .map(|failed| FailedView {
                    version: failed.version.clone(),
                    reason: failed.reason.clone(),
                    at: Moment::new(failed.at, now, t),
                    again_url: match view.offers.iter().any(|offer| offer.sha256 == failed.sha256 && offer.refused.is_none()) {
                        true if may && installs && !at_work => format!("/ui/updates/install/{}", failed.sha256),
                        _ => String::new(),
                    },
                })
                .collect(),
            history: view
                .history
                .iter()
                .take(SHOWN)
                .map(|line| HistoryView {
                    what: if line.outcome == "added" { line.version.clone() } else { t.updates_attempt(&line.from, &line.version) },
                    state: words::outcome(&line.outcome, t),
                    at: Moment::new(line.at, now, t),
                    why: line.sentence.clone().unwrap_or_default(),
                })
                .collect(),
            uploads: view
                .uploads
                .iter()
                .map(|upload| UploadView {
                    name: upload.name.clone(),
                    figures: t.storage_bytes_of(upload.received, upload.bytes),
                    whole: upload.received == upload.bytes,
                    take_url: if may { format!("/ui/updates/uploads/{}/take", upload.id) } else { String::new() },
                    drop_url: if may { format!("/ui/updates/uploads/{}/drop", upload.id) } else { String::new() },
                })
                .collect(),
            fields: fields(&view, t),
            automatic: Choice {
                id: "automatic",
                label: t.updates_automatic,
                chosen: view.settings.automatic.as_str().to_owned(),
                options: vec![
                    (Automatic::Off.as_str(), t.updates_automatic_off),
                    (Automatic::Download.as_str(), t.updates_automatic_download),
                    (Automatic::Install.as_str(), t.updates_automatic_install),
                ],
            },
            sticks: sticks.map(|disk| (format!("/ui/updates/sticks/{}", disk.key), t.updates_stick_take(disk.model.unwrap_or(disk.key)))).collect(),
            status: t.chat_status("{status}"),
            may,
            page: Shell::new(web, guest, t.updates_title, "/ui/live/updates").await?,
        })
    }

    pub(crate) const fn shell(&self) -> &Shell {
        &self.page
    }
}

fn notices(view: &UpdateView, t: &'static Text) -> Vec<(&'static str, &'static str, String)> {
    let mut found = Vec::new();
    if let Some(why) = &view.cannot_install {
        found.push(("info", t.updates_unavailable, why.clone()));
    }
    if let Some(reason) = &view.went_back {
        found.push(("failed", t.updates_went_back, reason.sentence.clone()));
    }
    if let Some(fault) = &view.fault {
        found.push(("failed", t.updates_fault, fault.sentence.clone()));
    }
    if let Some(why) = &view.stale {
        found.push(("waiting", t.updates_stale, why.clone()));
    }
    if let Some(fault) = &view.check_fault {
        found.push(("waiting", t.updates_check_fault, fault.sentence.clone()));
    }
    found
}

fn facts(view: &UpdateView, now: Timestamp, t: &'static Text) -> Vec<(&'static str, String)> {
    let slot = |slot: &SlotView| {
        let version = slot.version.clone().unwrap_or_else(|| wording::UNKNOWN.to_owned());
        let state = match slot.good {
            Some(true) => t.updates_slot_good,
            Some(false) => t.updates_slot_bad,
            None => t.updates_slot_unknown,
        };
        format!("{version} · {} · {state}", t.updates_slot(&slot.slot))
    };
    let mut rows = vec![(t.updates_running, view.version.clone())];
    rows.extend(view.slots.iter().map(|s| (if s.running { t.updates_this_slot } else { t.updates_other_slot }, slot(s))));
    rows.push((t.updates_channel, view.settings.channel_url.clone().unwrap_or_else(|| t.updates_channel_none.to_owned())));
    if let Some(next) = view.next_check {
        rows.push((t.updates_next_check, until(next, now, t)));
    }
    rows
}

/// How long until a moment, roughly.
fn until(at: Timestamp, now: Timestamp, t: &Text) -> String {
    let minutes = (at.as_second() - now.as_second()).max(0) / 60;
    match u64::try_from(minutes).unwrap_or(0) {
        0..90 => t.updates_in_minutes(u64::try_from(minutes).unwrap_or(0).max(1)),
        minutes => t.updates_in_hours(minutes.div_ceil(60)),
    }
}

fn bar(view: &UpdateView, t: &'static Text) -> Option<Progress> {
    let progress = view.progress.filter(|progress| progress.total > 0)?;
    let per_mille = u32::try_from(progress.done.saturating_mul(1000) / progress.total).unwrap_or(1000);
    let bytes = warden_domain::units::Bytes;
    let mut figures = if progress.bytes { t.storage_bytes_of(bytes(progress.done), bytes(progress.total)) } else { format!("{} %", progress.done) };
    if let Some(rate) = progress.per_second {
        figures = format!("{figures} · {}/s", bytes(rate));
    }
    if let Some(left) = progress.left_s {
        figures = format!("{figures} · {}", t.updates_left(wording::elapsed(Timestamp::UNIX_EPOCH, from_epoch(left))));
    }
    Some(Progress { label: words::phase(view.phase, t).label.to_owned(), figures, steps: Some((per_mille, 1000)) })
}

fn from_epoch(seconds: u64) -> Timestamp {
    Timestamp::from_second(i64::try_from(seconds).unwrap_or(0)).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn deeds(view: &UpdateView) -> Deeds {
    let moves = view.progress.is_some();
    Deeds {
        install: view.cannot_install.is_none() && !moves && view.phase == UpdatePhase::Verified,
        restart: view.phase == UpdatePhase::Staged,
        // A trial that was found bad and still runs has no other system to go back to.
        cancel: matches!(view.phase, UpdatePhase::Available | UpdatePhase::Downloading | UpdatePhase::Verified | UpdatePhase::Staged)
            || (view.phase == UpdatePhase::Trial && view.gate.iter().any(|check| check.outcome == "failed")),
    }
}

/// Systems that are older and refused would only fill the page.
fn shown(offer: &Offer) -> bool {
    !(offer.kind == "os" && offer.direction == "refused" && offer.failed_before.is_none() && offer.installed)
}

fn offer(offer: &Offer, view: &UpdateView, may: bool, now: Timestamp, t: &'static Text) -> OfferView {
    let system = offer.kind == "os";
    let (word, label) = match (offer.installed, &offer.refused, offer.failed_before.is_some(), offer.here) {
        (true, ..) => ("running", if system { t.updates_runs } else { t.updates_installed }),
        (_, Some(_), ..) => ("failed", t.updates_refused),
        (_, _, true, _) => ("failed", t.updates_failed_before),
        (.., true) => ("waiting", t.updates_here),
        _ => ("stopped", if offer.direction == "older" { t.updates_older } else { t.updates_new }),
    };
    let when = match offer.reaches {
        _ if offer.installed || offer.refused.is_some() || !system => String::new(),
        Reaches::Now => t.updates_reaches_now.to_owned(),
        Reaches::At(moment) => t.updates_reaches(until(moment, now, t)),
        Reaches::Held => t.updates_reaches_held.to_owned(),
    };
    let ours = view.attempt.as_ref().is_some_and(|attempt| attempt.sha256 == offer.sha256);
    let busy = match view.phase {
        UpdatePhase::Idle | UpdatePhase::Confirmed | UpdatePhase::RolledBack => false,
        UpdatePhase::Verified => ours,
        UpdatePhase::Staged => system || ours,
        _ => true,
    };
    let can = may && !offer.installed && offer.refused.is_none() && !busy && (!system || offer.direction != "same");
    OfferView {
        what: format!("{} {} {}", words::kind(offer.kind, t), offer.name, offer.version),
        size: offer.bytes.to_string(),
        state: StateView { word, label },
        when,
        notes: offer.notes.clone().unwrap_or_default(),
        why: offer.refused.as_ref().map(|fault| fault.sentence.clone()).or_else(|| offer.failed_before.clone()).unwrap_or_default(),
        install_url: if can { format!("/ui/updates/install/{}", offer.sha256) } else { String::new() },
        verb: match (system, offer.failed_before.is_some()) {
            (true, true) => t.updates_again,
            (true, false) if view.cannot_install.is_some() => t.updates_fetch,
            (true, false) => t.updates_install,
            (false, _) => t.updates_add,
        },
    }
}

fn fields(view: &UpdateView, t: &'static Text) -> Vec<Field> {
    let settings = &view.settings;
    let (from, to) = settings.window.map(warden_domain::update::Window::words).unwrap_or_default();
    let rate = settings.rate_limit.map(|limit| (limit.0 / 1024).to_string()).unwrap_or_default();
    let empty = "";
    vec![
        Field::text("channel_url", t.updates_url)
            .value(settings.channel_url.clone().unwrap_or_default())
            .hint(t.updates_url_hint)
            .placeholder("https://updates.example/stable")
            .optional(empty),
        Field::text("channel", t.updates_channel_name).value(settings.channel.clone()).hint(t.updates_channel_hint),
        Field::text("window_from", t.updates_window_from).value(from).hint(t.updates_window_hint).placeholder("02:00").optional(empty),
        Field::text("window_to", t.updates_window_to).value(to).placeholder("05:00").optional(empty),
        Field::text("rate", t.updates_rate).value(rate).hint(t.updates_rate_hint).optional(empty),
    ]
}

/// `GET /ui/updates`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    match Page::look(&web, &guest).await {
        Ok(page) => respond::page(&page),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}
