//! Why a step of an update did not work: each with its own code and its own sentence.

use std::io;

use rauc_client::RaucError;
use thiserror::Error;
use warden_bundle::BundleError;
use warden_domain::{Problem, ProblemKind, clock, units::Bytes, update::UpdateFault};
use warden_trust::Refusal;
use warden_update_record::FileError;

use crate::machine::Misstep;

/// What went wrong.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// A rule of trust was broken.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A bundle cannot be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// RAUC refused or failed.
    #[error(transparent)]
    Rauc(#[from] RaucError),
    /// A record cannot be read or written.
    #[error("{0}. Restart the box; if it stays, the state partition is damaged.")]
    Record(#[from] FileError),
    /// The steps are out of order.
    #[error("{0}. This is a fault of the software; report it.")]
    Misstep(#[from] Misstep),
    /// A domain problem of another room.
    #[error("{}", .0.full_text())]
    Problem(Problem),
    /// A file of ours cannot be read or written.
    #[error("{doing}: {source}. Check the data disk and its free room, then try again.")]
    Io {
        /// What was tried.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// The server cannot be reached.
    #[error("the update server {host} cannot be reached: {cause}. Check the network and the address of the channel; it is tried again.")]
    Unreachable {
        /// Which.
        host: String,
        /// Why.
        cause: String,
    },
    /// The server answers with an error.
    #[error("the update server answers {status} for {path}. Check the address of the channel; if it is right, tell the publisher.")]
    Status {
        /// Status code.
        status: u16,
        /// Path asked for.
        path: String,
    },
    /// The server sends the box elsewhere.
    #[error("the update server sends this box on to {to}, and it follows no redirects. Put the final address into the settings.")]
    Moved {
        /// Where to.
        to: String,
    },
    /// The server sends more than it may.
    #[error("{path} from the update server is larger than {}. It was not read on; tell the publisher.", Bytes(*.limit))]
    TooLarge {
        /// Path asked for.
        path: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// The transfer broke off.
    #[error("the transfer broke off after {}: {cause}. It goes on from there by itself.", Bytes(*.got))]
    BrokeOff {
        /// Bytes that are here.
        got: u64,
        /// Why.
        cause: String,
    },
    /// The server gives another piece than was asked for.
    #[error("the update server answered with another piece of the file than was asked for ({found}). Tell the publisher; it is tried again later.")]
    OtherRange {
        /// What it said.
        found: String,
    },
    /// Somebody cancelled.
    #[error("the update was cancelled; nothing was installed. Begin it again when it is wanted.")]
    Cancelled,
    /// The image would run a program of its own.
    #[error(
        "the image brings a program along that would run while it is installed, and this box runs none. Nothing was written; take another image."
    )]
    RunsCode,
    /// The image is of a format that is not checked while it is read.
    #[error("the image is of the format {format:?}, and this box takes only \"verity\". Nothing was written; take another image.")]
    OtherFormat {
        /// Which.
        format: String,
    },
    /// The image is of another product.
    #[error("the image is for {found:?}, and this box is {expected:?}. Nothing was written; take the image made for this product.")]
    OtherProduct {
        /// What it is for.
        found: String,
        /// What this box is.
        expected: String,
    },
    /// The image says another version than the release.
    #[error("the image says that it is version {found}, and the signed release names {expected}. Nothing was written; tell the publisher.")]
    OtherVersion {
        /// What it says.
        found: String,
        /// What the release says.
        expected: String,
    },
    /// The running system was not found good, and the other slot is what it could be started from instead.
    #[error(
        "the health check has not found the running system good since it started, so the other one is kept. Nothing was written; see the issues, and try again when they are gone."
    )]
    Unproven,
    /// There is no slot to install into.
    #[error("the update service names no slot that is free to be written. Nothing was written; restart the box and try again.")]
    NoTarget,
    /// The slot is not as it should be after the install.
    #[error("after the install the new system is not the next one to start: {detail}. The old one stays; try again, and report it if it stays so.")]
    NotStaged {
        /// What was found.
        detail: String,
    },
    /// The install was cut off too often.
    #[error(
        "the install was cut off {times} times by a restart or a power cut. The running system was not touched; choose Install now to try again."
    )]
    CutOff {
        /// How often.
        times: u32,
    },
    /// The bundle carries no system for this box.
    #[error("the bundle holds nothing that this box can use{detail}. Choose another bundle.")]
    NothingInside {
        /// Why, after a colon.
        detail: String,
    },
}

impl Fault {
    /// For `map_err` on files.
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// A stable name.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Bundle(fault) => fault.code(),
            Self::Rauc(RaucError::OtherManifest { .. }) => "other_manifest",
            Self::Rauc(RaucError::Denied { .. }) => "rauc_denied",
            Self::Rauc(RaucError::Busy) => "rauc_busy",
            Self::Rauc(RaucError::Failed { .. }) => "rauc_refused",
            Self::Rauc(_) => "rauc_failed",
            Self::Record(_) => "record_unreadable",
            Self::Misstep(_) => "misstep",
            Self::Problem(problem) => problem.kind.code(),
            Self::Io { source, .. } if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => "disk_full",
            Self::Io { .. } => "file_io",
            Self::Unreachable { .. } => "server_unreachable",
            Self::Status { .. } => "server_status",
            Self::Moved { .. } => "server_moved",
            Self::TooLarge { .. } => "server_too_large",
            Self::BrokeOff { .. } => "broke_off",
            Self::OtherRange { .. } => "other_range",
            Self::Cancelled => "cancelled",
            Self::RunsCode => "image_runs_code",
            Self::OtherFormat { .. } => "image_format",
            Self::OtherProduct { .. } => "image_product",
            Self::OtherVersion { .. } => "image_version",
            Self::Unproven => "not_proven",
            Self::NoTarget => "no_target_slot",
            Self::NotStaged { .. } => "not_staged",
            Self::CutOff { .. } => "install_cut_off",
            Self::NothingInside { .. } => "nothing_inside",
        }
    }

    /// True when the same try may work a while later: the network or its server, not what was fetched.
    #[must_use]
    pub const fn passes(&self) -> bool {
        // A page that a gateway puts in the place of everything redirects, or has a length of its own.
        self.breaks_off() || matches!(self, Self::Moved { .. } | Self::Unproven | Self::Refused(Refusal::CutShort { .. } | Refusal::TooLong { .. }))
    }

    /// True when the same try may work in a moment.
    #[must_use]
    pub const fn breaks_off(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Status { .. } | Self::BrokeOff { .. } | Self::OtherRange { .. } | Self::Refused(Refusal::TooSlow { .. })
        )
    }

    /// True when the image itself is at fault, as its bytes or the update service showed: it is not taken by itself again.
    #[must_use]
    pub const fn blames_image(&self) -> bool {
        matches!(
            self,
            Self::Rauc(RaucError::Failed { .. } | RaucError::OtherManifest { .. })
                | Self::RunsCode
                | Self::OtherFormat { .. }
                | Self::OtherProduct { .. }
                | Self::OtherVersion { .. }
                | Self::NotStaged { .. }
                | Self::Refused(Refusal::DamagedPart { .. } | Refusal::DamagedTarget { .. })
        )
    }

    /// As pages and API show it.
    #[must_use]
    pub fn shown(&self) -> UpdateFault {
        UpdateFault { code: self.code().to_owned(), sentence: sentence(&self.to_string()), at: clock::now() }
    }

    /// For tasks and answers.
    #[must_use]
    pub fn problem(&self) -> Problem {
        if let Self::Problem(problem) = self {
            return problem.clone();
        }
        let kind = match self {
            Self::Rauc(_) => ProblemKind::SystemService,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => ProblemKind::DiskFull,
            Self::Io { .. } | Self::Record(_) | Self::Misstep(_) => ProblemKind::Internal,
            Self::Unreachable { .. } | Self::Status { .. } | Self::Moved { .. } | Self::BrokeOff { .. } | Self::OtherRange { .. } => {
                ProblemKind::Upstream
            }
            Self::Cancelled | Self::Unproven => ProblemKind::Conflict,
            _ => ProblemKind::Invalid,
        };
        Problem::new(kind, sentence(&self.to_string()))
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Rules speak in clauses that begin small; on a page they are sentences.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
