//! What surrounds every page: title, theme, language, navigation, the strip, the signed-in person.

use warden_domain::{
    Problem, clock,
    model::{Model, StateWord},
};

use crate::{
    Web,
    catalogue::{Lang, Text},
    look::Theme,
    visit::{Guest, Look},
    wording::{self, StateView},
};

/// The surroundings of one page.
pub(crate) struct Shell {
    pub(crate) t: &'static Text,
    pub(crate) theme: Theme,
    pub(crate) title: String,
    pub(crate) box_name: String,
    pub(crate) version: &'static str,
    /// Proof for changing calls; empty without a session.
    pub(crate) csrf: String,
    /// Empty without a session.
    pub(crate) user: String,
    pub(crate) path: String,
    pub(crate) strip: Option<Strip>,
    /// Where this page's live fragments come from; empty for none.
    pub(crate) live: String,
}

/// One row of the navigation.
pub(crate) struct NavItem {
    pub(crate) href: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) label: &'static str,
    pub(crate) current: bool,
}

/// Address, icon and label of one page.
type NavRow = (&'static str, &'static str, fn(&Text) -> &'static str);

/// The pages that exist, in the order of the rail.
const NAV: &[NavRow] = &[
    ("/ui/", "home", |t| t.nav_home),
    ("/ui/models", "models", |t| t.nav_models),
    ("/ui/chat", "chat", |t| t.nav_chat),
    ("/ui/keys", "keys", |t| t.nav_keys),
    ("/ui/gpus", "gpus", |t| t.nav_gpus),
    ("/ui/network", "network", |t| t.nav_network),
    ("/ui/storage", "storage", |t| t.nav_storage),
    ("/ui/updates", "updates", |t| t.nav_updates),
    ("/ui/tls", "lock", |t| t.nav_tls),
    ("/ui/system", "system", |t| t.nav_system),
];

impl Shell {
    /// Around a page behind the login.
    pub(crate) async fn new(web: &Web, guest: &Guest, title: &str, live: &str) -> Result<Self, Problem> {
        let strip = Strip::look(web, guest.look.lang.text()).await?;
        Ok(Self { strip: Some(strip), ..Self::bare(web, guest, title, live) })
    }

    /// Around a page of the wizard: signed in, without rail and strip.
    pub(crate) fn bare(web: &Web, guest: &Guest, title: &str, live: &str) -> Self {
        Self {
            csrf: guest.principal.csrf.expose().clone(),
            user: guest.principal.username.clone(),
            live: live.to_owned(),
            ..Self::door(web, guest.look, &guest.path, title)
        }
    }

    /// Around a page before the login.
    pub(crate) fn door(web: &Web, look: Look, path: &str, title: &str) -> Self {
        Self {
            t: look.lang.text(),
            theme: look.theme,
            title: title.to_owned(),
            box_name: web.names.present(),
            version: web.version,
            csrf: String::new(),
            user: String::new(),
            path: path.to_owned(),
            strip: None,
            live: String::new(),
        }
    }

    pub(crate) fn nav(&self) -> Vec<NavItem> {
        let inside = |href: &str| {
            if href == "/ui/" {
                self.path == href
            } else {
                self.path == href || self.path.strip_prefix(href).is_some_and(|rest| rest.starts_with('/'))
            }
        };
        NAV.iter().map(|(href, icon, label)| NavItem { href, icon, label: label(self.t), current: inside(href) }).collect()
    }

    pub(crate) const fn themes(&self) -> [(&'static str, &'static str, &'static str); 3] {
        [("auto", "auto", self.t.look_auto), ("light", "sun", self.t.look_light), ("dark", "moon", self.t.look_dark)]
    }

    pub(crate) fn languages(&self) -> [(&'static str, &'static str, &'static str); 2] {
        Lang::ALL.map(|lang| (lang.code(), lang.short(), lang.name()))
    }

    /// The wizard's steps with the place of each relative to `step` (1 to 3).
    pub(crate) fn setup_steps(&self, step: &usize) -> Vec<(&'static str, &'static str)> {
        [self.t.setup_step_claim, self.t.setup_step_model, self.t.setup_step_done]
            .into_iter()
            .enumerate()
            .map(|(place, label)| match (place + 1).cmp(step) {
                std::cmp::Ordering::Less => ("past", label),
                std::cmp::Ordering::Equal => ("here", label),
                std::cmp::Ordering::Greater => ("ahead", label),
            })
            .collect()
    }
}

/// The line on top of every page.
pub(crate) struct Strip {
    pub(crate) issues: usize,
    pub(crate) health: String,
    pub(crate) models: Vec<StripModel>,
    pub(crate) more: usize,
    pub(crate) in_flight: String,
    pub(crate) in_flight_words: String,
}

/// A model that is loaded, or on its way.
pub(crate) struct StripModel {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) state: StateView,
    pub(crate) what: String,
}

/// How many models the strip names; the rest is a number.
const NAMED: usize = 2;

impl Strip {
    pub(crate) async fn look(web: &Web, t: &'static Text) -> Result<Self, Problem> {
        let models = web.registry.list().await?;
        Ok(Self::of(web, &models, web.issues.board().count(), t))
    }

    fn of(web: &Web, models: &[Model], issues: usize, t: &Text) -> Self {
        let states = web.serving.states();
        let now = clock::now();
        let mut shown: Vec<StripModel> = models
            .iter()
            .filter_map(|model| {
                let state = states.get(&model.id)?;
                let what = match state.state {
                    StateWord::Stopped => return None,
                    StateWord::Loading => format!("{} · {}", wording::phase(state.phase.as_deref(), t), wording::elapsed(state.since, now)),
                    other => StateView::of(other, t).label.to_owned(),
                };
                Some(StripModel { id: model.id.to_string(), name: model.config.served_name.clone(), state: StateView::of(state.state, t), what })
            })
            .collect();
        let more = shown.len().saturating_sub(NAMED);
        shown.truncate(NAMED);
        let in_flight: u64 = models.iter().map(|model| web.flights.of_model(&model.id) as u64).sum();
        Self {
            issues,
            health: if issues == 0 { t.strip_fine.to_owned() } else { t.strip_attention(issues as u64) },
            models: shown,
            more,
            in_flight: wording::grouped(in_flight),
            in_flight_words: t.strip_in_flight(in_flight),
        }
    }
}
