//! `/ui/models/new`: register a model file, found or named by path.

use std::path::PathBuf;

use askama::Template;
use axum::{
    Form,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::Deserialize;
use warden_domain::{
    Problem, ProblemKind,
    model::{Candidate, NewModel},
    units::Tokens,
};

use crate::{
    Web,
    assets::url,
    catalogue::Text,
    field::Field,
    refusal::{self, refuse},
    respond,
    shell::Shell,
    visit::Guest,
};

/// A model file that could be registered, as a row to choose.
pub(crate) struct CandidateView {
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) size: String,
    pub(crate) chosen: bool,
}

/// The candidates, with the first one chosen.
pub(crate) fn choices(found: &[Candidate]) -> Vec<CandidateView> {
    found
        .iter()
        .enumerate()
        .map(|(place, candidate)| CandidateView {
            path: candidate.path.display().to_string(),
            name: candidate.suggested_name.clone(),
            size: candidate.size.to_string(),
            chosen: place == 0,
        })
        .collect()
}

#[derive(Template)]
#[template(path = "models/new.html")]
struct New {
    page: Shell,
    candidates: Vec<CandidateView>,
    other_chosen: bool,
    fields: Vec<Field>,
}

/// What the form of page and wizard sends; all of it text, checked here.
#[derive(Deserialize)]
pub(crate) struct Wanted {
    #[serde(default)]
    candidate: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    served_name: String,
    #[serde(default)]
    context: String,
    #[serde(default)]
    slots: String,
}

impl Wanted {
    /// The registration this asks for. A typed path counts only when no found file is chosen.
    pub(crate) fn into_new(self, t: &Text) -> Result<NewModel, Problem> {
        let path = if self.candidate.trim().is_empty() { self.path.trim() } else { self.candidate.trim() };
        if path.is_empty() {
            return Err(Problem::new(ProblemKind::Invalid, t.new_no_path).hint(t.new_no_path_body).param("path"));
        }
        let name = self.served_name.trim();
        Ok(NewModel {
            path: PathBuf::from(path),
            served_name: (!name.is_empty()).then(|| name.to_owned()),
            context: number::<u64>(&self.context, t.new_context, t)?.map(Tokens),
            slots: number::<u16>(&self.slots, t.new_slots, t)?,
            ..NewModel::default()
        })
    }
}

pub(crate) fn number<N: std::str::FromStr>(text: &str, field: &str, t: &Text) -> Result<Option<N>, Problem> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if digits.is_empty() {
        return Ok(None);
    }
    digits.parse().map(Some).map_err(|_| Problem::new(ProblemKind::Invalid, t.new_not_number(field)).hint(t.new_not_number_body))
}

/// Path and name: all that the wizard asks.
pub(crate) fn path_fields(t: &'static Text, none_found: bool) -> Vec<Field> {
    let path = Field::text("path", t.new_path).hint(t.new_path_hint).optional("").placeholder("smollm2/model.gguf");
    vec![if none_found { path.focus() } else { path }]
}

/// `GET /ui/models/new`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    let t = guest.look.lang.text();
    let made = async {
        let candidates = choices(&web.registry.candidates().await?);
        let mut fields = path_fields(t, candidates.is_empty());
        fields.extend([
            Field::text("served_name", t.new_name).hint(t.new_name_hint).optional(t.new_optional),
            Field::text("context", t.new_context).hint(t.new_context_hint).optional(t.new_optional),
            Field::text("slots", t.new_slots).hint(t.new_slots_hint).optional(t.new_optional),
        ]);
        Ok(New { page: Shell::new(&web, &guest, t.new_title, "/ui/live/strip").await?, other_chosen: candidates.is_empty(), candidates, fields })
    };
    match made.await {
        Ok(new) => respond::page(&new),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}

/// `POST /ui/models`: checks and registers, then shows the model.
pub(crate) async fn submit(State(web): State<Web>, headers: HeaderMap, guest: Guest, Form(wanted): Form<Wanted>) -> Response {
    match register(&web, &guest, wanted).await {
        Ok(id) => respond::go(&headers, &format!("/ui/models/{id}")),
        Err(problem) => {
            let (title, body) = refusal::words(&problem, guest.look.lang.text());
            let status = if problem.kind == ProblemKind::Invalid { StatusCode::UNPROCESSABLE_ENTITY } else { refusal::status(&problem) };
            refusal::notice(status, &title, &body)
        }
    }
}

/// Registers what a form asked for; the same for page and wizard.
pub(crate) async fn register(web: &Web, guest: &Guest, wanted: Wanted) -> Result<String, Problem> {
    if !guest.is_admin() {
        return Err(refusal::role(guest));
    }
    let new = wanted.into_new(guest.look.lang.text())?;
    let model = web.registry.register(new).await?;
    web.serving.caught_up().await;
    Ok(model.id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::EN;

    fn wanted(candidate: &str, path: &str, context: &str) -> Wanted {
        Wanted {
            candidate: candidate.to_owned(),
            path: path.to_owned(),
            served_name: " ".to_owned(),
            context: context.to_owned(),
            slots: String::new(),
        }
    }

    #[test]
    fn a_chosen_file_wins_over_a_path_left_in_the_field() {
        let new = wanted("/m/a.gguf", "/m/b.gguf", "4 096").into_new(&EN).unwrap();
        assert_eq!(new.path, PathBuf::from("/m/a.gguf"));
        assert_eq!(new.context, Some(Tokens(4096)));
        assert_eq!(new.served_name, None);
    }

    #[test]
    fn an_empty_form_says_what_to_choose() {
        let problem = wanted("", " ", "").into_new(&EN).unwrap_err();
        assert!(problem.full_text().contains("No file was chosen"));
        let problem = wanted("/m/a.gguf", "", "many").into_new(&EN).unwrap_err();
        assert!(problem.message.contains("Context window"));
    }
}
