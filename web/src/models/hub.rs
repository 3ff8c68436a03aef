//! `/ui/models/hub`: a model by the name of its repository. The address holds the whole question, so it can be kept and sent on.

use std::collections::BTreeSet;

use askama::Template;
use axum::{
    extract::{Query, State},
    http::HeaderMap,
    response::Response,
};
use warden_domain::{
    Problem,
    hub::{Care, Choice, ChoiceFit, RepoAsk},
};

use super::{asked::Asked, sums::Sums};
use crate::{
    Web,
    assets::url,
    catalogue::Text,
    field::Field,
    refusal::{self, refuse},
    respond,
    shell::Shell,
    visit::Guest,
    wording::UNKNOWN,
};

/// Names in the sentence about files that would run code.
const CODE_SHOWN: usize = 8;

/// A card to reckon with.
pub(crate) struct CardView {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) memory: String,
    pub(crate) chosen: bool,
}

/// A choice of the repository.
struct ChoiceView {
    filename: String,
    what: String,
    size: String,
    sums: Option<Sums>,
    incomplete: String,
    url: String,
}

/// What was found.
struct Found {
    repo: String,
    commit: String,
    place: String,
    choices: Vec<ChoiceView>,
    /// A sentence about files that are not offered.
    others: String,
    /// A sentence about files that would run code.
    code: String,
}

#[derive(Template)]
#[template(path = "models/hub.html")]
struct Page {
    page: Shell,
    fields: Vec<Field>,
    cards: Vec<CardView>,
    found: Option<Found>,
    trouble: Option<(String, String)>,
    endpoint: String,
    may: bool,
}

/// The cards of this machine, with those that were chosen.
pub(crate) fn cards(web: &Web, asked: &Asked, t: &Text) -> Vec<CardView> {
    let snapshot = web.hub.cards();
    let view = |card: &warden_domain::gpu::GpuCard| {
        let free = card.memory_total.zip(card.memory_used).map(|(total, used)| warden_domain::units::Bytes(total.0.saturating_sub(used.0)));
        CardView {
            index: card.index,
            name: card.name.clone().unwrap_or_else(|| card.id.to_string()),
            memory: free.zip(card.memory_total).map_or_else(|| UNKNOWN.to_owned(), |(free, total)| t.storage_free_of(free, total)),
            chosen: asked.cards.contains(&card.index),
        }
    };
    snapshot.cards.iter().map(view).collect()
}

/// `GET /ui/models/hub`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest, Query(pairs): Query<Vec<(String, String)>>) -> Response {
    let asked = Asked::read(&pairs);
    match look(&web, &guest, &asked).await {
        Ok(page) => respond::page(&page),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

async fn look(web: &Web, guest: &Guest, asked: &Asked) -> Result<Page, Problem> {
    let t = guest.look.lang.text();
    let (found, trouble) = match asked.repo.is_empty() {
        true => (None, None),
        false => match find(web, asked, t).await {
            Ok(found) => (Some(found), None),
            Err(problem) => (None, Some(refusal::words(&problem, t))),
        },
    };
    let repo = Field::text("repo", t.hub_repo).hint(t.hub_repo_hint).placeholder("owner/name").value(asked.repo.clone());
    let repo = if asked.repo.is_empty() { repo.focus() } else { repo };
    let fields = vec![
        repo,
        Field::text("revision", t.hub_revision).hint(t.hub_revision_hint).optional(t.new_optional).value(asked.revision.clone()),
        Field::text("context", t.new_context).hint(t.new_context_hint).optional(t.new_optional).value(asked.context.clone()),
        Field::text("slots", t.new_slots).hint(t.new_slots_hint).optional(t.new_optional).value(asked.slots.clone()),
    ];
    Ok(Page {
        fields,
        cards: cards(web, asked, t),
        found,
        trouble,
        endpoint: web.hub.settings().await?.endpoint,
        may: guest.is_admin(),
        page: Shell::new(web, guest, t.hub_title, "/ui/live/strip").await?,
    })
}

async fn find(web: &Web, asked: &Asked, t: &'static Text) -> Result<Found, Problem> {
    let ask = asked.fit(t)?;
    // Looked at first: its refusal is the one to show.
    web.hub.discover(&RepoAsk { repo: asked.repo.clone(), revision: asked.revision.clone() }).await?;
    let fits = web.hub.fit(&ask, Care::Quick).await?;
    // Once more, now that the headers were read: they tell number formats that names do not.
    let found = web.hub.discover(&RepoAsk { repo: asked.repo.clone(), revision: asked.revision.clone() }).await?;
    let place = fits.first().map(|fit| fit.table.place.clone()).unwrap_or_default();
    // Several choices may share a file.
    let offered: BTreeSet<&str> = found.choices.iter().flat_map(|choice| &choice.files).map(|file| file.path.as_str()).collect();
    let others = found.files.len().saturating_sub(offered.len()) as u64;
    let code: Vec<&str> = found.code().map(|file| file.path.as_str()).collect();
    let more = if code.len() > CODE_SHOWN { ", …" } else { "" };
    let names = format!("{}{more}", code.iter().take(CODE_SHOWN).copied().collect::<Vec<_>>().join(", "));
    let code = if code.is_empty() { String::new() } else { t.hub_code(names) };
    Ok(Found {
        choices: found.choices.iter().map(|choice| view(choice, &fits, asked, t)).collect(),
        repo: found.repo,
        commit: found.commit.chars().take(12).collect(),
        place,
        others: match others {
            0 => String::new(),
            others => t.hub_others(others),
        },
        code,
    })
}

fn view(choice: &Choice, fits: &[ChoiceFit], asked: &Asked, t: &'static Text) -> ChoiceView {
    let sums = fits.iter().find(|fit| fit.filename == choice.filename).map(|fit| Sums::of(&fit.table, t));
    let format = choice.quantisation.clone().unwrap_or_else(|| UNKNOWN.to_owned());
    let parts = if choice.files.len() > 1 { format!(" · {}", t.hub_files(choice.files.len() as u64)) } else { String::new() };
    let here = Asked { filename: choice.filename.clone(), ..asked.clone() };
    ChoiceView {
        filename: choice.filename.clone(),
        what: format!("{format} · {}{parts}", choice.engine.as_str()),
        size: choice.size.to_string(),
        sums,
        incomplete: choice.incomplete.clone().unwrap_or_default(),
        url: if choice.incomplete.is_none() { here.link("/ui/models/hub/choice") } else { String::new() },
    }
}
