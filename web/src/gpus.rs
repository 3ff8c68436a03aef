//! `/ui/gpus`: one row per card, and how far the rows may be trusted; live.

use askama::Template;
use axum::{extract::State, http::HeaderMap, response::Response};
use jiff::Timestamp;
use warden_domain::{
    Problem, clock,
    gpu::{GpuCard, GpuHolder, GpuNotice, GpuReading, GpuReport, PcieLink},
    units::{Bytes, Celsius, MilliWatts},
};

use crate::{
    Web,
    assets::url,
    catalogue::Text,
    refusal::refuse,
    respond,
    shell::Shell,
    visit::Guest,
    wording::{UNKNOWN, ago, elapsed},
};

/// A temperature above this share of the card's own limit is close to it.
const CLOSE_TO_LIMIT: f64 = 0.85;

/// A sentence that must be seen: kind, title, body.
type Notice = (&'static str, String, String);

/// A figure with a mark when something is wrong with it: the mark's state word (colour and shape) and words.
struct Figure {
    text: String,
    mark: Option<(&'static str, &'static str)>,
    notes: Vec<String>,
}

impl Figure {
    const fn plain(text: String) -> Self {
        Self { text, mark: None, notes: Vec::new() }
    }
}

struct Row {
    id: String,
    /// Enough of the identity to tell cards apart.
    short_id: String,
    name: String,
    place: String,
    used: Figure,
    memory: Figure,
    /// Filled and total, in thousandths.
    memory_bar: Option<u32>,
    temperature: Figure,
    power: Figure,
    link: Figure,
    /// Name of a program and what it holds.
    holders: Vec<(String, String)>,
    /// Instead of holders: nobody, or unknown.
    no_holders: &'static str,
}

#[derive(Template)]
#[template(path = "gpus/page.html", blocks = ["live"])]
pub(crate) struct Page {
    page: Shell,
    state: &'static str,
    notices: Vec<Notice>,
    /// Instead of rows: title, body, and what the reader said.
    empty: Option<(&'static str, String)>,
    driver: Option<String>,
    rows: Vec<Row>,
}

impl Page {
    pub(crate) async fn look(web: &Web, guest: &Guest) -> Result<Self, Problem> {
        let t = guest.look.lang.text();
        let report = web.gpus.report();
        let snapshot = &report.snapshot;
        Ok(Self {
            state: snapshot.reading.as_str(),
            notices: notices(&report, clock::now(), t),
            empty: empty(&report, t),
            driver: snapshot.driver.as_ref().map(|version| t.gpus_driver(version)),
            rows: snapshot.cards.iter().map(|card| row(card, t)).collect(),
            page: Shell::new(web, guest, t.gpus_title, "/ui/live/gpus").await?,
        })
    }

    pub(crate) const fn shell(&self) -> &Shell {
        &self.page
    }
}

fn notices(report: &GpuReport, now: Timestamp, t: &Text) -> Vec<Notice> {
    let mut all = Vec::new();
    match &report.snapshot.reading {
        GpuReading::Stale { cause, .. } => {
            let time = report.since(now).map_or_else(|| UNKNOWN.to_owned(), |since| elapsed(since, now));
            let known = report.read_at.map_or_else(|| t.gpus_stale_unknown.to_owned(), |at| t.gpus_stale_body(ago(at, now, t)));
            all.push(("waiting", t.gpus_stale(time), format!("{cause} {known}")));
        }
        GpuReading::Failed { cause } => all.push(("failed", t.gpus_failed.to_owned(), format!("{cause} {}", t.gpus_failed_body))),
        GpuReading::Starting => all.push(("info", t.gpus_starting.to_owned(), t.gpus_starting_body.to_owned())),
        GpuReading::Live | GpuReading::NoLibrary { .. } => {}
    }
    if report.snapshot.simulated {
        all.push(("info", t.gpus_simulated.to_owned(), t.gpus_simulated_body.to_owned()));
    }
    all.extend(report.notices.iter().map(|notice| match notice {
        GpuNotice::Gone { id, index, name } => ("failed", t.gpus_gone(name.as_deref().unwrap_or(t.gpus_nameless)), t.gpus_gone_body(id, index)),
        GpuNotice::Doubled { id, index } => ("waiting", t.gpus_doubled.to_owned(), t.gpus_doubled_body(id, index)),
        GpuNotice::Unnamed { index, cause } => ("waiting", t.gpus_doubled.to_owned(), t.gpus_unnamed_body(cause, index)),
    }));
    all
}

fn empty(report: &GpuReport, t: &Text) -> Option<(&'static str, String)> {
    match &report.snapshot.reading {
        GpuReading::NoLibrary { detail } => Some((t.gpus_no_library, format!("{} {detail}", t.gpus_no_library_body))),
        GpuReading::Live if report.snapshot.cards.is_empty() => Some((t.gpus_no_cards, t.gpus_no_cards_body.to_owned())),
        _ => None,
    }
}

fn row(card: &GpuCard, t: &Text) -> Row {
    let (memory, memory_bar) = memory(card.memory_used, card.memory_total, t);
    Row {
        short_id: short(card.id.as_str()),
        id: card.id.to_string(),
        name: card.name.clone().unwrap_or_else(|| t.gpus_nameless.to_owned()),
        place: [Some(t.gpus_number(card.index)), card.pci.clone()].into_iter().flatten().collect::<Vec<_>>().join(" · "),
        used: Figure::plain(card.utilisation_ratio.map_or_else(|| UNKNOWN.to_owned(), |ratio| t.gpus_percent((ratio * 100.0).round()))),
        memory,
        memory_bar,
        temperature: temperature(card.temperature, card.temperature_limit, t),
        power: power(card.power, card.power_cap, t),
        link: link(card.link, t),
        holders: card.holders.iter().flatten().map(|h| holder(h, t)).collect(),
        no_holders: if card.holders.is_some() { t.gpus_nobody } else { UNKNOWN },
    }
}

/// The first part of an identity such as `GPU-3c2b0000-…`.
fn short(id: &str) -> String {
    match id.match_indices('-').nth(1) {
        Some((end, _)) => format!("{}…", &id[..end]),
        None => id.to_owned(),
    }
}

fn memory(used: Option<Bytes>, total: Option<Bytes>, t: &Text) -> (Figure, Option<u32>) {
    let bar = used.zip(total).filter(|(_, total)| total.0 > 0);
    let bar = bar.map(|(used, total)| u32::try_from(used.0.saturating_mul(1000) / total.0).unwrap_or(1000).min(1000));
    let text = match (used, total) {
        (Some(used), Some(total)) => t.gpus_of(total, used),
        (None, Some(total)) => t.gpus_of(total, UNKNOWN),
        (Some(used), None) => used.to_string(),
        (None, None) => UNKNOWN.to_owned(),
    };
    (Figure::plain(text), bar)
}

#[allow(clippy::cast_precision_loss, reason = "degrees are small")]
fn temperature(now: Option<Celsius>, limit: Option<Celsius>, t: &Text) -> Figure {
    let Some(now) = now else { return Figure::plain(UNKNOWN.to_owned()) };
    let Some(limit) = limit else { return Figure::plain(t.gpus_degrees(now.0)) };
    let mark = if now >= limit {
        Some(("failed", t.gpus_hot))
    } else {
        (now.0 as f64 >= limit.0 as f64 * CLOSE_TO_LIMIT).then_some(("waiting", t.gpus_warm))
    };
    Figure { text: t.gpus_degrees_of(limit.0, now.0), mark, notes: Vec::new() }
}

fn power(now: Option<MilliWatts>, cap: Option<MilliWatts>, t: &Text) -> Figure {
    let watts = |power: MilliWatts| (power.0 + 500) / 1000;
    Figure::plain(match (now, cap) {
        (Some(now), Some(cap)) => t.gpus_watts_of(watts(cap), watts(now)),
        (None, Some(cap)) => t.gpus_watts_of(watts(cap), UNKNOWN),
        (Some(now), None) => t.gpus_watts(watts(now)),
        (None, None) => UNKNOWN.to_owned(),
    })
}

/// Lanes decide; a generation that rests is no fault.
fn link(link: PcieLink, t: &Text) -> Figure {
    let text = match (link.width_now, link.width_max) {
        (Some(now), Some(most)) => t.gpus_lanes(most, now),
        (Some(now), None) => t.gpus_lanes_only(now),
        (None, _) => UNKNOWN.to_owned(),
    };
    let generation = link.generation_now.zip(link.generation_max).map(|(now, most)| t.gpus_generation(most, now));
    let narrow = link.narrow() == Some(true);
    Figure {
        text,
        mark: narrow.then_some(("failed", t.gpus_narrow)),
        notes: narrow.then(|| t.gpus_narrow_body.to_owned()).into_iter().chain(generation).collect(),
    }
}

fn holder(holder: &GpuHolder, t: &Text) -> (String, String) {
    let who = match &holder.name {
        Some(name) => t.gpus_holder(name, holder.pid),
        None => t.gpus_holder_unnamed(holder.pid),
    };
    (who, holder.memory.map_or_else(|| UNKNOWN.to_owned(), |memory| memory.to_string()))
}

/// `GET /ui/gpus`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    match Page::look(&web, &guest).await {
        Ok(page) => respond::page(&page),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::EN;

    #[test]
    fn a_card_is_marked_against_its_own_limit() {
        let mark = |now, limit| temperature(Some(Celsius(now)), limit, &EN).mark.map(|(word, _)| word);
        assert_eq!(mark(60, Some(Celsius(83))), None);
        assert_eq!(mark(75, Some(Celsius(83))), Some("waiting"));
        assert_eq!(mark(83, Some(Celsius(83))), Some("failed"));
        assert_eq!(mark(95, None), None, "without a limit nobody can say");
    }

    #[test]
    fn a_link_that_rests_in_a_low_generation_is_no_fault_and_a_narrow_one_is() {
        let made = |now| link(PcieLink { width_now: Some(now), width_max: Some(16), generation_now: Some(1), generation_max: Some(4) }, &EN);
        assert!(made(16).mark.is_none());
        let narrow = made(4);
        assert_eq!((narrow.text.as_str(), narrow.mark.map(|(word, _)| word)), ("x4 of x16", Some("failed")));
        assert!(narrow.notes[0].contains("slot"));
        assert!(link(PcieLink::default(), &EN).mark.is_none());
    }

    #[test]
    fn what_the_driver_does_not_tell_is_never_shown_as_nought() {
        assert_eq!(power(None, Some(MilliWatts(350_000)), &EN).text, "– of 350 W");
        assert_eq!(memory(None, None, &EN).0.text, "–");
    }
}
