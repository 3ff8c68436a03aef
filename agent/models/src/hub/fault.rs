//! What goes wrong between this box and a hub, each as its own sentence with what to do. Pure.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use warden_domain::{Problem, ProblemKind, units::Bytes};

/// The longest wait a hub can ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Whom and what a sentence is about.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// Address of the hub.
    pub(crate) endpoint: String,
    /// `owner/name`.
    pub(crate) repo: String,
    /// The revision asked for.
    pub(crate) revision: String,
    /// Whether a token was sent along.
    pub(crate) with_token: bool,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No connection, or no answer on it.
    Unreachable { host: String, cause: String },
    /// A redirect that is not followed.
    Redirect { to: String },
    /// An answer that is no success.
    Answer(Refusal),
    /// It sends more than it may.
    TooLarge { what: String, limit: u64 },
    /// It lists more than it may.
    TooMany { what: String, limit: usize },
    /// As many long answers are being read already as there is memory for.
    Busy,
    /// The answer broke off.
    BrokeOff { cause: String },
    /// The answer is not what this call answers with.
    Malformed { what: String },
}

/// An answer that is no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// `X-Error-Code`.
    pub(crate) code: String,
    /// `X-Error-Message`.
    pub(crate) message: String,
    /// How long the hub asks to wait.
    pub(crate) wait: Option<Duration>,
    /// Names the request in the hub's own logs.
    pub(crate) request_id: String,
    /// True when a storage server that the hub sent us to answered.
    pub(crate) elsewhere: bool,
}

impl Refusal {
    /// From the head of an answer.
    pub(crate) fn read(status: StatusCode, headers: &HeaderMap, elsewhere: bool) -> Self {
        let text = |name: &str| -> String {
            let value = headers.get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).unwrap_or_default();
            value.chars().filter(|c| !c.is_control()).take(200).collect()
        };
        let request_id = [text("x-request-id"), text("x-amz-cf-id")].into_iter().find(|id| !id.is_empty()).unwrap_or_default();
        Self { status: status.as_u16(), code: text("x-error-code"), message: text("x-error-message"), wait: wait(headers), request_id, elsewhere }
    }
}

/// `retry-after` in seconds, or `t=` of the IETF's `ratelimit` when nothing is left (`r=0`).
fn wait(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let seconds = |text: &str| text.trim().parse().ok().map(Duration::from_secs);
    let limit = || {
        let windows = text("ratelimit")?.split(',');
        let over = |window: &&str| window.split(';').any(|part| part.trim() == "r=0");
        let waits = windows.filter(over).filter_map(|window| window.split(';').find_map(|part| seconds(part.trim().strip_prefix("t=")?)));
        waits.max()
    };
    text("retry-after").and_then(seconds).or_else(limit).map(|wait| wait.min(LONGEST_WAIT))
}

impl Fault {
    /// True when the same call may work in a moment.
    pub(crate) const fn passes(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::BrokeOff { .. } | Self::Busy => true,
            // A signed address of a storage server ends; asking the hub again gives another one.
            Self::Answer(refusal) => refusal.elsewhere || matches!(refusal.status, 408 | 429) || refusal.status >= 500,
            Self::Redirect { .. } | Self::TooLarge { .. } | Self::TooMany { .. } | Self::Malformed { .. } => false,
        }
    }

    /// How long the hub asks to wait.
    pub(crate) const fn wait(&self) -> Option<Duration> {
        match self {
            Self::Answer(refusal) if refusal.status == 429 || refusal.status == 503 => refusal.wait,
            _ => None,
        }
    }

    /// The sentence.
    pub(crate) fn problem(&self, about: &Subject) -> Problem {
        let hub = &about.endpoint;
        match self {
            Self::Unreachable { host, cause } => Problem::new(ProblemKind::Upstream, format!("The hub {host} cannot be reached: {cause}."))
                .hint("Check the network, its gateway and its name servers. Without a way to the internet, put the address of a mirror into the hub's settings, or import the model from a stick."),
            Self::Redirect { to } => Problem::new(ProblemKind::Upstream, format!("The hub {hub} sends this box on to {to}, which is not followed."))
                .hint("Check the address in the hub's settings."),
            Self::TooLarge { what, limit } => {
                Problem::new(ProblemKind::Upstream, format!("The hub sends more than {} for {what}; it was not read on.", Bytes(*limit)))
                    .hint("Check the address in the hub's settings; if it is right, this repository is too large for this box.")
            }
            Self::TooMany { what, limit } => {
                Problem::new(ProblemKind::Upstream, format!("The hub lists more than {limit} {what} of {}; it was not read on.", about.repo))
                    .hint("This repository is too large for this box; look for one that holds the model alone.")
            }
            Self::Busy => Problem::new(ProblemKind::TooManyRequests, "The box is reading as many headers of models as it has memory for.".to_owned())
                .hint("Try again in a moment.")
                .retry_after(Duration::from_secs(10)),
            Self::BrokeOff { cause } => Problem::new(ProblemKind::Upstream, format!("The answer of the hub broke off: {cause}.")).hint("Try again."),
            Self::Malformed { what } => Problem::new(ProblemKind::Upstream, format!("The answer of {hub} is not that of a hub: {what}."))
                .hint("Check the address in the hub's settings: it is the part before /api/models."),
            Self::Answer(refusal) => refusal.problem(about),
        }
    }
}

impl Refusal {
    fn problem(&self, about: &Subject) -> Problem {
        let Subject { endpoint, repo, revision, with_token } = about;
        let page = format!("{endpoint}/{repo}");
        let disabled = self.message.to_ascii_lowercase().contains("disabled");
        let problem = match (self.status, self.code.as_str()) {
            (401 | 403, _) if disabled => Problem::new(ProblemKind::Forbidden, format!("The hub has disabled {repo}: {}", sentence(&self.message)))
                .hint(format!("Its page {page} may say why. Choose another repository.")),
            (401, "GatedRepo") | (403, _) if !with_token => {
                Problem::new(ProblemKind::AuthRequired, format!("{repo} is gated: the hub hands it out to people who accepted its terms."))
                    .hint(format!("Sign in at {page}, accept the terms there, then put an access token of that account into the hub's settings."))
            }
            (401 | 403, "GatedRepo") | (403, _) => {
                Problem::new(ProblemKind::AuthRequired, format!("{repo} is gated, and the account of this box's access token may not fetch it."))
                    .hint(format!("Sign in with that account at {page} and accept the terms there; some owners approve by hand. Then try again."))
            }
            (401, _) if *with_token => {
                let bad_token = self.message.to_ascii_lowercase().contains("credential") || self.message.to_ascii_lowercase().contains("token");
                if bad_token {
                    Problem::new(ProblemKind::AuthRequired, "The hub does not take this box's access token.".to_owned())
                        .hint("Make a new one on the hub and put it into the hub's settings.")
                } else {
                    Problem::new(
                        ProblemKind::AuthRequired,
                        format!("The hub shows no {repo} to the account of this box's access token: it is private, or does not exist."),
                    )
                    .hint("Check the spelling, and that this account may see it.")
                }
            }
            (401, _) => Problem::new(
                ProblemKind::AuthRequired,
                format!("The hub shows no {repo} without signing in: it is private or gated, or does not exist."),
            )
            .hint(format!(
                "Check the spelling. If the page {page} exists, put an access token of an account that may see it into the hub's settings."
            )),
            (404, "RevisionNotFound") => Problem::new(ProblemKind::NotFound, format!("{repo} has no revision {revision}."))
                .hint("Leave the revision empty for main, or take a branch, tag or commit from the repository's page.")
                .param("revision"),
            (404, "EntryNotFound") => {
                Problem::new(ProblemKind::NotFound, format!("A file of {repo} is not there any more.")).hint("Look at the repository again.")
            }
            (404 | 410, _) => Problem::new(ProblemKind::NotFound, format!("There is no repository {repo} on {endpoint}."))
                .hint("Check the spelling: owner/name, with capitals as on its page.")
                .param("repo_id"),
            (429, _) => {
                let wait = self.wait.unwrap_or(Duration::from_secs(60));
                Problem::new(
                    ProblemKind::TooManyRequests,
                    format!("The hub has had enough requests from this address; it asks to wait {} s.", wait.as_secs()),
                )
                .hint("Downloads go on by themselves then. An access token in the hub's settings raises the limit.")
                .retry_after(wait)
            }
            (status @ 500.., _) => Problem::new(ProblemKind::Upstream, format!("The hub is out of order at the moment: it answers {status}."))
                .hint("Try again in a few minutes."),
            (status, _) => {
                Problem::new(ProblemKind::Upstream, format!("The hub answers {status} for {repo}. {}", sentence(&self.message)).trim_end().to_owned())
                    .hint("Check the address in the hub's settings.")
            }
        };
        match (&problem.hint, self.request_id.as_str()) {
            (Some(hint), id) if !id.is_empty() => {
                let hint = format!("{hint} (The hub's number of this request: {id}.)");
                problem.hint(hint)
            }
            _ => problem,
        }
    }
}

fn sentence(text: &str) -> String {
    let text = text.trim().trim_end_matches('.');
    if text.is_empty() { String::new() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(with_token: bool) -> Subject {
        Subject { endpoint: "https://hub.example".to_owned(), repo: "owner/name".to_owned(), revision: "v9".to_owned(), with_token }
    }

    fn answered(status: u16, headers: &[(&'static str, &str)], with_token: bool) -> Problem {
        let headers: HeaderMap = headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect();
        Fault::Answer(Refusal::read(StatusCode::from_u16(status).unwrap(), &headers, false)).problem(&about(with_token))
    }

    #[test]
    fn each_refusal_is_a_sentence_of_its_own_with_what_to_do() {
        let gated = [("x-error-code", "GatedRepo")];
        for (status, headers, token, kind, words) in [
            (401, &gated[..], false, ProblemKind::AuthRequired, "accept the terms"),
            (403, &gated[..], true, ProblemKind::AuthRequired, "Sign in with that account"),
            (401, &[("x-error-code", "RepoNotFound")][..], false, ProblemKind::AuthRequired, "Check the spelling"),
            (401, &[("x-error-message", "Invalid credentials in Authorization header")][..], true, ProblemKind::AuthRequired, "Make a new one"),
            (403, &[("x-error-message", "Access to this resource is disabled.")][..], false, ProblemKind::Forbidden, "Choose another"),
            (404, &[("x-error-code", "RepoNotFound")][..], true, ProblemKind::NotFound, "no repository owner/name"),
            (404, &[("x-error-code", "RevisionNotFound")][..], false, ProblemKind::NotFound, "no revision v9"),
            (404, &[("x-error-code", "EntryNotFound")][..], false, ProblemKind::NotFound, "not there any more"),
            (503, &[][..], false, ProblemKind::Upstream, "out of order"),
            (418, &[][..], false, ProblemKind::Upstream, "418"),
        ] {
            let problem = answered(status, headers, token);
            assert_eq!(problem.kind, kind, "{problem:?}");
            assert!(problem.full_text().contains(words), "{problem:?}");
            assert!(problem.hint.is_some());
        }
    }

    #[test]
    fn a_hub_that_asks_for_patience_is_waited_for_as_long_as_it_says() {
        let problem = answered(429, &[("ratelimit", "\"api\";r=0;t=55, \"pages\";r=10;t=200")], false);
        assert_eq!((problem.kind, problem.retry_after), (ProblemKind::TooManyRequests, Some(Duration::from_secs(55))));
        assert_eq!(answered(429, &[("retry-after", "7")], false).retry_after, Some(Duration::from_secs(7)));
        assert_eq!(answered(429, &[("retry-after", "999999")], false).retry_after, Some(LONGEST_WAIT));
    }

    #[test]
    fn the_hubs_number_of_a_request_is_told() {
        assert!(answered(500, &[("x-request-id", "Root=1-abc")], false).full_text().contains("Root=1-abc"));
    }

    #[test]
    fn a_storage_servers_refusal_is_tried_again_and_the_hubs_own_is_not() {
        let refusal = |elsewhere| Fault::Answer(Refusal::read(StatusCode::FORBIDDEN, &HeaderMap::new(), elsewhere));
        assert!(refusal(true).passes() && !refusal(false).passes());
    }
}
