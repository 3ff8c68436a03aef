//! What is kept of a Messages request until its answer is told.

/// How the answer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The id of the request; the ids of the answer are made of it.
    pub(super) request: String,
    /// The model's name as the client said it.
    pub(super) model: String,
    /// The client asked for thinking, so it is shown.
    pub(super) thinking: bool,
}

impl Plan {
    /// What is different in every id of one answer.
    pub(in crate::dialects) fn seed(&self) -> &str {
        self.request.strip_prefix("req_").unwrap_or(&self.request)
    }
}
