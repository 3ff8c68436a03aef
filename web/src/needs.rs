//! What needs a person now: the open issues, and the next steps towards using the box. Issues come from the one list there is; this
//! file decides only what is a step. Pure apart from `look`, which reads the ports.

use warden_domain::{
    Problem,
    engine::{EnginePack, PackState},
    issue::IssueBoard,
    key::Key,
    model::Model,
    update::{UpdatePhase, UpdateView},
};

use crate::{Web, catalogue::Text, issues};

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

/// Reads the ports and decides.
pub(crate) async fn look(web: &Web, models: &[Model], t: &'static Text) -> Result<Vec<Need>, Problem> {
    let keys = web.keys.list().await?;
    let mut found = needs(models, &web.issues.board(), &web.engines.packs().await, &keys, t);
    found.extend(update(&web.updates.view().await, t));
    Ok(found)
}

/// What waits for somebody about updates: a restart, an install, a newer system.
fn update(view: &UpdateView, t: &'static Text) -> Option<Need> {
    let version = view.attempt.as_ref().map_or("", |attempt| attempt.version.as_str());
    let newer = view.offers.iter().find(|offer| offer.kind == "os" && offer.direction == "newer" && offer.refused.is_none());
    let newer = newer.filter(|offer| offer.failed_before.is_none());
    match (view.phase, newer) {
        (UpdatePhase::Staged, _) => Some(next("updates", &t.need_update_staged(version), t.need_update_staged_body, t.need_update_go, "/ui/updates")),
        (UpdatePhase::Verified, _) => Some(next("updates", &t.need_update_here(version), t.need_update_here_body, t.need_update_go, "/ui/updates")),
        (UpdatePhase::Idle | UpdatePhase::Confirmed | UpdatePhase::RolledBack, Some(offer)) => {
            Some(next("updates", &t.need_update_new(&offer.version), t.need_update_new_body, t.need_update_go, "/ui/updates"))
        }
        _ => None,
    }
}

/// Issues in their own order, then next steps.
pub(crate) fn needs(models: &[Model], board: &IssueBoard, packs: &[EnginePack], keys: &[Key], t: &'static Text) -> Vec<Need> {
    let mut found = Vec::new();
    for issue in board.open.iter().filter(|issue| issue.needs_somebody()) {
        let finding = &issue.finding;
        let kind = issues::kind(finding.code.severity());
        let model = models.iter().find(|model| model.id.as_str() == finding.subject);
        found.push(Need {
            kind,
            icon: kind,
            title: issues::title(issue, model.map(|model| model.config.served_name.as_str()), t),
            body: issues::words::said(&finding.said, t),
            action: t.issues_go,
            href: format!("/ui/issues#{}", issue.id),
        });
    }
    for pack in packs.iter().filter(|pack| matches!(pack.state, PackState::Building { .. })) {
        found.push(Need {
            kind: "next",
            icon: "engine",
            title: t.need_building(pack.engine.as_str()),
            body: t.need_building_body.to_owned(),
            action: t.need_engine_go,
            href: "/ui/models#engines".to_owned(),
        });
    }
    if models.is_empty() {
        found.push(next("models", t.need_model, t.need_model_body, t.need_model_go, "/ui/models/new"));
    }
    if keys.iter().all(|key| key.revoked_at.is_some()) {
        found.push(next("keys", t.need_key, t.need_key_body, t.need_key_go, "/ui/keys"));
    }
    found
}

fn next(icon: &'static str, title: &str, body: &str, action: &'static str, href: &str) -> Need {
    Need { kind: "next", icon, title: title.to_owned(), body: body.to_owned(), action, href: href.to_owned() }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use warden_domain::{
        ids::{AccountId, IssueId},
        issue::{Dismissal, Finding, Issue, IssueCode, Said},
        units::Bytes,
    };

    use super::*;
    use crate::catalogue::EN;

    fn issue(code: IssueCode, dismissed: bool) -> Issue {
        let at = Timestamp::UNIX_EPOCH;
        let finding = Finding {
            code,
            subject: "data".into(),
            said: Said::DataDiskNearlyFull { free: Bytes(1 << 30), total: Bytes(64 << 30) },
            hint: String::new(),
            fix: None,
        };
        let dismissed = dismissed.then(|| Dismissal { at, by: AccountId::from_stored("acc_1"), reason: None });
        Issue { id: IssueId::from_stored("iss_1"), finding, first_seen: at, last_seen: at, resolved_at: None, dismissed }
    }

    #[test]
    fn a_fresh_box_names_its_next_steps_and_no_fault() {
        let needs = needs(&[], &IssueBoard::default(), &[], &[], &EN);
        assert_eq!(needs.iter().map(|need| need.kind).collect::<Vec<_>>(), ["next", "next"]);
    }

    #[test]
    fn an_issue_comes_before_next_steps_with_its_figures_and_one_that_somebody_knows_does_not_ask_again() {
        let board = |dismissed| IssueBoard { open: vec![issue(IssueCode::DataDiskNearlyFull, dismissed)], ..IssueBoard::default() };
        let open = needs(&[], &board(false), &[], &[], &EN);
        assert_eq!((open[0].kind, open[0].href.as_str()), ("waiting", "/ui/issues#iss_1"));
        assert!(open[0].body.contains("1.0 GiB"));
        assert!(needs(&[], &board(true), &[], &[], &EN).iter().all(|need| need.kind == "next"));
    }
}
