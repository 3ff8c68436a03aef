//! What is kept of a Responses request until its answer is told.

use super::tools::Origin;

/// Longest setting that is told back; longer ones (schemas) would be held for every stream.
pub(super) const LONGEST_ECHO: usize = 1024;

/// How the answer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The id of the request; the ids of the answer are made of it.
    pub(super) request: String,
    /// When it came, in seconds since the epoch.
    pub(super) created: i64,
    /// The model's name as the client said it.
    pub(super) model: String,
    /// The client asked for thinking, so it is shown.
    pub(super) thinking: bool,
    /// The client asked for the part of the thinking that it is to send back.
    pub(super) sealed: bool,
    /// Tools that are no plain functions, by name.
    pub(super) origins: Vec<(String, Origin)>,
    /// Settings told back as they came: name and JSON.
    pub(super) echoes: Vec<(&'static str, String)>,
}

impl Plan {
    /// What is different in every id of one answer.
    pub(in crate::dialects) fn seed(&self) -> &str {
        self.request.strip_prefix("req_").unwrap_or(&self.request)
    }

    /// What a call of this tool is answered as, when it is no plain function.
    pub(super) fn origin(&self, name: &str) -> Option<&Origin> {
        self.origins.iter().find(|(known, _)| known == name).map(|(_, origin)| origin)
    }
}
