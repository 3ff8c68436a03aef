//! `/ui/issues`: what is wrong with the box, what to do about it, fixes of one click; what was wrong; what could not be looked at.

mod act;
pub(crate) mod words;

use std::collections::BTreeMap;

use askama::Template;
use axum::{extract::State, http::HeaderMap, response::Response};
use jiff::Timestamp;
use warden_domain::{
    Problem, clock,
    issue::{Fix, Issue, IssueCode, Severity},
};

pub(crate) use act::{ask_dismiss, check, dismiss, fix, recall};

use crate::{
    Web,
    assets::url,
    catalogue::Text,
    refusal::refuse,
    respond,
    shell::Shell,
    visit::Guest,
    wording::{self, Moment},
};

/// How many issues that are over are shown.
const OVER: usize = 30;

/// One issue as a row.
pub(crate) struct IssueView {
    pub(crate) id: String,
    /// CSS class and icon: `failed` or `waiting`.
    pub(crate) kind: &'static str,
    pub(crate) severity: &'static str,
    pub(crate) title: String,
    pub(crate) sentence: String,
    pub(crate) todo: String,
    pub(crate) code: &'static str,
    pub(crate) first_seen: Moment,
    pub(crate) over: Option<Moment>,
    pub(crate) lasted: String,
    /// The fix of one click: where to post, and its verb.
    pub(crate) fix: Option<(String, &'static str)>,
    pub(crate) dismissed: Option<String>,
    pub(crate) may_change: bool,
    /// The page of the model it is about; empty for others.
    pub(crate) model_url: String,
    pub(crate) dismiss_url: String,
    pub(crate) recall_url: String,
}

impl IssueView {
    fn of(issue: &Issue, names: &BTreeMap<String, String>, guest: &Guest, now: Timestamp) -> Self {
        let t = guest.look.lang.text();
        let finding = &issue.finding;
        let severity = finding.code.severity();
        let name = names.get(&finding.subject);
        Self {
            id: issue.id.to_string(),
            kind: kind(severity),
            severity: if severity == Severity::Error { t.issues_error } else { t.issues_warning },
            title: title(issue, name.map(String::as_str), t),
            sentence: words::said(&finding.said, t),
            todo: words::todo(finding.code, &finding.hint, t),
            code: finding.code.as_str(),
            first_seen: Moment::new(issue.first_seen, now, t),
            over: issue.resolved_at.map(|at| Moment::new(at, now, t)),
            lasted: wording::elapsed(issue.first_seen, issue.resolved_at.unwrap_or(now)),
            fix: finding.fix.as_ref().filter(|_| guest.may_change()).map(|fix| (format!("/ui/issues/{}/fix", issue.id), verb(fix, t))),
            dismissed: issue.dismissed.as_ref().map(|d| d.reason.clone().unwrap_or_default()),
            may_change: guest.may_change(),
            model_url: name.map(|_| format!("/ui/models/{}", finding.subject)).unwrap_or_default(),
            dismiss_url: format!("/ui/issues/{}/dismiss", issue.id),
            recall_url: format!("/ui/issues/{}/recall", issue.id),
        }
    }
}

/// CSS class and icon of a severity.
pub(crate) const fn kind(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "failed",
        Severity::Warning => "waiting",
    }
}

/// What is wrong in a few words, with the name of what it is about.
pub(crate) fn title(issue: &Issue, model: Option<&str>, t: &Text) -> String {
    let title = words::title(issue.finding.code, t);
    match (model, issue.finding.code) {
        (Some(name), _) => format!("{title}: {name}"),
        (None, IssueCode::UnitFailed | IssueCode::EngineMissing) => format!("{title}: {}", issue.finding.subject),
        (None, _) => title.to_owned(),
    }
}

const fn verb(fix: &Fix, t: &Text) -> &'static str {
    match fix {
        Fix::LoadModel(_) => t.issues_fix_load,
        Fix::StartTimeService => t.issues_fix_time,
        Fix::SendAlerts => t.issues_fix_send,
    }
}

/// Names of models by their ids.
pub(crate) async fn model_names(web: &Web) -> Result<BTreeMap<String, String>, Problem> {
    Ok(web.registry.list().await?.into_iter().map(|model| (model.id.to_string(), model.config.served_name)).collect())
}

#[derive(Template)]
#[template(path = "issues/list.html", blocks = ["live"])]
pub(crate) struct List {
    page: Shell,
    open: Vec<IssueView>,
    known: Vec<IssueView>,
    over: Vec<IssueView>,
    /// Title and reason of what could not be checked.
    unchecked: Vec<(&'static str, String)>,
    checked: String,
    may_change: bool,
    is_admin: bool,
}

impl List {
    pub(crate) async fn look(web: &Web, guest: &Guest) -> Result<Self, Problem> {
        let t = guest.look.lang.text();
        let now = clock::now();
        let names = model_names(web).await?;
        let board = web.issues.board();
        let over = web.issues.resolved(OVER).await?;
        let view = |issue: &Issue| IssueView::of(issue, &names, guest, now);
        Ok(Self {
            open: board.open.iter().filter(|issue| issue.needs_somebody()).map(view).collect(),
            known: board.open.iter().filter(|issue| !issue.needs_somebody()).map(view).collect(),
            over: over.iter().map(view).collect(),
            unchecked: board.unchecked.iter().map(|u| (words::title(u.code, t), u.because.clone())).collect(),
            // To the minute, so that a page where nothing happens is not sent again.
            checked: board.checked_at.map_or_else(
                || t.issues_never.to_owned(),
                |at| {
                    if now.as_second() - at.as_second() < 60 { t.issues_checked_now.to_owned() } else { t.issues_checked(wording::ago(at, now, t)) }
                },
            ),
            may_change: guest.may_change(),
            is_admin: guest.is_admin(),
            page: Shell::new(web, guest, t.issues_title, "/ui/live/issues").await?,
        })
    }

    pub(crate) const fn shell(&self) -> &Shell {
        &self.page
    }
}

/// `GET /ui/issues`
pub(crate) async fn page(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    match List::look(&web, &guest).await {
        Ok(list) => respond::page(&list),
        Err(problem) => refuse(&web, guest.look, &headers, &problem),
    }
}
