//! What went wrong, once, for every dialect: a stable code, a sentence that names cause and subject, and the way out.
//!
//! Rooms return `Problem`; the edge (api, gateway, web) turns it into the shape of the path it was asked on. Status codes live here
//! so that the same fault answers alike everywhere.

use std::time::Duration;

/// The kinds of fault a caller can meet. Each has one stable code and one HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The request cannot be understood (not JSON, a field missing or of the wrong type).
    BadRequest,
    /// A field's value is not allowed.
    Invalid,
    /// A prompt is longer than the context window of its model.
    ContextExceeded,
    /// No credentials, or none that are known.
    Unauthorized,
    /// Known, but not allowed to do this.
    Forbidden,
    /// A hub of models wants an access token, or its owner's consent, before it hands something out.
    AuthRequired,
    /// The thing named does not exist, or is not visible to this caller.
    NotFound,
    /// The model named is not loaded or does not exist.
    ModelNotFound,
    /// The method is not offered on this path.
    MethodNotAllowed,
    /// The path speaks another protocol than the one asked for.
    UpgradeRequired,
    /// It clashes with the present state (name taken, already loaded, setup already done).
    Conflict,
    /// The body is larger than the limit.
    TooLarge,
    /// Too many tries or requests from this caller.
    TooManyRequests,
    /// The model file is missing, cut, or not what it claims to be.
    BadModelFile,
    /// No engine for this model is installed or ready.
    EngineUnavailable,
    /// The engine did not start, or died.
    EngineFailed,
    /// There is no capacity now; try again later.
    Overloaded,
    /// The engine could not be reached or broke off.
    Upstream,
    /// The engine did not answer in time.
    UpstreamTimeout,
    /// The disk has no room left.
    DiskFull,
    /// The recorded disk that holds it is not plugged in or cannot be used.
    DiskMissing,
    /// A system service (D-Bus, systemd, the helper) is missing or refused.
    SystemService,
    /// The agent is shutting down.
    ShuttingDown,
    /// A fault of ours.
    Internal,
}

impl ProblemKind {
    /// The stable code, as in `error_code` of the control API.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Invalid => "invalid_value",
            Self::ContextExceeded => "context_length_exceeded",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::AuthRequired => "auth_required",
            Self::NotFound => "not_found",
            Self::ModelNotFound => "model_not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UpgradeRequired => "upgrade_required",
            Self::Conflict => "conflict",
            Self::TooLarge => "body_too_large",
            Self::TooManyRequests => "too_many_requests",
            Self::BadModelFile => "bad_model_file",
            Self::EngineUnavailable => "engine_unavailable",
            Self::EngineFailed => "engine_failed",
            Self::Overloaded => "overloaded",
            Self::Upstream => "upstream_unreachable",
            Self::UpstreamTimeout => "upstream_timeout",
            Self::DiskFull => "disk_full",
            Self::DiskMissing => "disk_missing",
            Self::SystemService => "system_service",
            Self::ShuttingDown => "shutting_down",
            Self::Internal => "internal",
        }
    }

    /// The HTTP status of this kind.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest | Self::ContextExceeded => 400,
            Self::Invalid | Self::BadModelFile => 422,
            Self::Unauthorized => 401,
            Self::Forbidden | Self::AuthRequired => 403,
            Self::NotFound | Self::ModelNotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::UpgradeRequired => 426,
            Self::Conflict => 409,
            Self::TooLarge => 413,
            Self::TooManyRequests => 429,
            Self::Internal => 500,
            Self::EngineFailed | Self::Upstream => 502,
            Self::EngineUnavailable | Self::Overloaded | Self::SystemService | Self::DiskMissing | Self::ShuttingDown => 503,
            Self::UpstreamTimeout => 504,
            Self::DiskFull => 507,
        }
    }
}

/// One fault as a caller sees it. The sentence says what happened to which thing and why; the hint says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// What kind of fault, with its code and status.
    pub kind: ProblemKind,
    /// Cause and subject, in one or two plain sentences.
    pub message: String,
    /// The way out, when there is one.
    pub hint: Option<String>,
    /// When to try again, for 429 and 503.
    pub retry_after: Option<Duration>,
    /// The request field at fault, for dialects that name it.
    pub param: Option<String>,
}

impl Problem {
    /// A problem with a sentence and no hint.
    #[must_use]
    pub fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, retry_after: None, param: None }
    }

    /// Adds the way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the field at fault.
    #[must_use]
    pub fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Says when to try again.
    #[must_use]
    pub const fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// A fault of ours; the sentence goes to the caller, so it must hold no secret and no path.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ProblemKind::Internal, message)
    }

    /// Sentence and hint as one text, for places with a single field.
    #[must_use]
    pub fn full_text(&self) -> String {
        match &self.hint {
            Some(hint) => format!("{} {hint}", self.message),
            None => self.message.clone(),
        }
    }

    /// Classifies an I/O error by its cause: a full disk is its own kind, with its own way out.
    #[must_use]
    pub fn from_io(subject: &str, cause: &std::io::Error) -> Self {
        match cause.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::new(ProblemKind::DiskFull, format!("{subject}: the disk is full, nothing was changed."))
                    .hint("Free some space (remove models that are not needed) and try again.")
            }
            std::io::ErrorKind::NotFound => Self::new(ProblemKind::NotFound, format!("{subject}: it does not exist.")),
            std::io::ErrorKind::PermissionDenied => Self::new(ProblemKind::Forbidden, format!("{subject}: the agent may not read or write it.")),
            _ => Self::internal(format!("{subject}: {cause}.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_named_as_such_with_a_way_out() {
        let p = Problem::from_io("saving the key", &std::io::Error::from_raw_os_error(28));
        assert_eq!(p.kind, ProblemKind::DiskFull);
        assert!(p.full_text().contains("disk is full"));
        assert!(p.hint.is_some());
    }
}
