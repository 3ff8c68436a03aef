//! Issues: what is wrong with the box, in one sentence, with what to do and, where it is safe, a fix of one click.
//!
//! An issue is a stable code and a subject (a model, a unit, a disk). Rooms that see something wrong implement `Check`; the monitor
//! runs all checks, remembers what it found and is the one source for pages, API, local screen and alerts.

use async_trait::async_trait;
use jiff::Timestamp;

pub use crate::said::Said;
use crate::{
    Problem,
    change::Topic,
    ids::{AccountId, IssueId, ModelId},
    units::Millis,
};

/// How much it hurts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something does not work, or data is in danger.
    Error,
    /// Something will stop working, or works worse than it should.
    Warning,
}

impl Severity {
    /// The word stored and sent.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// The table of all codes: name, word, how much it hurts, and for how many seconds it must be seen before it counts.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $severity:ident, $patience:literal;)*) => {
        /// What kind of issue. The word of a code never changes its meaning; each has a row in `docs/issues.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum IssueCode {
            $($(#[$doc])* $name,)*
        }

        impl IssueCode {
            /// All codes, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The word stored and sent.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// How much it hurts.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// How long it must be seen without a break before it is an issue: what passes by itself is none.
            #[must_use]
            pub const fn patience(self) -> std::time::Duration {
                std::time::Duration::from_secs(match self { $(Self::$name => $patience,)* })
            }
        }
    };
}

codes! {
    /// The disk with the models has no room left.
    DataDiskFull = "data_disk_full", Error, 0;
    /// The disk with the models has little room left.
    DataDiskNearlyFull = "data_disk_nearly_full", Warning, 0;
    /// The disk with the models takes no writes.
    DataDiskReadOnly = "data_disk_read_only", Error, 0;
    /// The data partition is not mounted.
    DataDiskMissing = "data_disk_missing", Error, 20;
    /// A disk that was made model storage is not there, or cannot be used.
    ModelDiskMissing = "model_disk_missing", Error, 10;
    /// The partition with settings and accounts has little room left.
    StateDiskNearlyFull = "state_disk_nearly_full", Error, 0;
    /// A model that should run does not: its engine did not start, or died.
    ModelFailed = "model_failed", Error, 0;
    /// A model that should run waits for something.
    ModelWaiting = "model_waiting", Warning, 5;
    /// The file of a registered model is gone or cannot be read.
    ModelFileMissing = "model_file_missing", Error, 0;
    /// The file of a registered model has another size than when it was registered.
    ModelFileChanged = "model_file_changed", Warning, 0;
    /// A registered model needs an engine that is not usable.
    EngineMissing = "engine_missing", Error, 5;
    /// No network interface has an address.
    NoNetworkAddress = "no_network_address", Error, 20;
    /// There is an address but no way out of the local network.
    NoDefaultRoute = "no_default_route", Warning, 20;
    /// A system service failed.
    UnitFailed = "unit_failed", Error, 0;
    /// The service that keeps the clock does not run.
    TimeServiceStopped = "time_service_stopped", Warning, 10;
    /// No time server has set the clock since the start.
    ClockNotSynchronised = "clock_not_synchronised", Warning, 900;
    /// The box gave up the other system slot and runs the older system.
    BootFellBack = "boot_fell_back", Error, 0;
    /// The update channel was not refreshed in time.
    ChannelStale = "channel_stale", Warning, 0;
    /// An update did not work and does not go on by itself.
    UpdateFailed = "update_failed", Warning, 0;
    /// The firmware does not check what it starts.
    SecureBootOff = "secure_boot_off", Warning, 0;
    /// The certificate of the encrypted port ends soon and was not made anew.
    CertificateEnding = "certificate_ending", Error, 0;
    /// Alerts do not reach their receiver.
    AlertNotDelivered = "alert_not_delivered", Warning, 0;
}

impl IssueCode {
    /// Reads the stored word back; an unknown word is no code.
    #[must_use]
    pub fn from_stored(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == word)
    }
}

impl std::fmt::Display for IssueCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A fix of one click: safe, quick, and undone by nothing worse than doing nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Loads the model again.
    LoadModel(ModelId),
    /// Starts the service that keeps the clock.
    StartTimeService,
    /// Sends the alerts that wait at once.
    SendAlerts,
}

impl Fix {
    /// The word sent for this kind of fix.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::LoadModel(_) => "load_model",
            Self::StartTimeService => "start_time_service",
            Self::SendAlerts => "send_alerts",
        }
    }
}

/// What a check saw wrong at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind.
    pub code: IssueCode,
    /// What it is about: a model's id, a unit's name, `data`. Part of the identity.
    pub subject: String,
    /// What is wrong, with figures, in one or two plain sentences; as text it is English.
    pub said: Said,
    /// What to do.
    pub hint: String,
    /// A fix of one click, where there is one.
    pub fix: Option<Fix>,
}

/// What one look of a check came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Looked {
    /// It could look; everything wrong is here.
    Seen(Vec<Finding>),
    /// It could not look, because… (a sentence). What was open stays open; nothing is called fine.
    NotChecked(String),
}

/// One check: knows a few codes and how to see them. Implemented by the monitor and by any room with facts of its own.
#[async_trait]
pub trait Check: Send + Sync {
    /// The codes this check decides about, and no other check does.
    fn codes(&self) -> &'static [IssueCode];

    /// News after which a look is due at once; without news it looks at every tick.
    fn listens(&self) -> &'static [Topic] {
        &[]
    }

    /// Looks once. Takes milliseconds and never fails: what it cannot see is `NotChecked`.
    async fn look(&self) -> Looked;
}

/// An issue as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Identity of this appearance: an issue that comes back later is another one.
    pub id: IssueId,
    /// What is wrong.
    pub finding: Finding,
    /// When it was first seen.
    pub first_seen: Timestamp,
    /// When it was last seen.
    pub last_seen: Timestamp,
    /// When it was seen to be over; `None` while it is open.
    pub resolved_at: Option<Timestamp>,
    /// Set when somebody said that they know.
    pub dismissed: Option<Dismissal>,
}

impl Issue {
    /// Whether it asks for somebody: open, and nobody said that they know.
    #[must_use]
    pub const fn needs_somebody(&self) -> bool {
        self.resolved_at.is_none() && self.dismissed.is_none()
    }
}

/// Somebody knows about an issue; it is not counted any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dismissal {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: AccountId,
    /// Why, if they said so; at most 200 characters.
    pub reason: Option<String>,
}

/// A code that could not be checked at the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unchecked {
    /// Which.
    pub code: IssueCode,
    /// Why, in a sentence.
    pub because: String,
}

/// Everything known about issues at one moment.
#[derive(Clone, Debug, Default)]
pub struct IssueBoard {
    /// Open ones, errors first, then oldest first.
    pub open: Vec<Issue>,
    /// What could not be checked.
    pub unchecked: Vec<Unchecked>,
    /// When all checks last looked; `None` before the first look.
    pub checked_at: Option<Timestamp>,
    /// How long that look took.
    pub took: Millis,
}

impl IssueBoard {
    /// How many ask for somebody; the number in the strip.
    #[must_use]
    pub fn count(&self) -> usize {
        self.open.iter().filter(|issue| issue.needs_somebody()).count()
    }
}

/// Issues, as the api and the pages use them.
#[async_trait]
pub trait Issues: Send + Sync {
    /// What is known now. Never waits.
    fn board(&self) -> std::sync::Arc<IssueBoard>;

    /// Issues that are over, newest first, at most `most`.
    async fn resolved(&self, most: usize) -> Result<Vec<Issue>, Problem>;

    /// Looks again now and returns once all checks have looked.
    async fn check_now(&self) -> Result<(), Problem>;

    /// Notes that somebody knows. `NotFound` when it is not open, `Invalid` for a reason that is too long or has control characters.
    async fn dismiss(&self, by: &AccountId, id: &IssueId, reason: Option<&str>) -> Result<Issue, Problem>;

    /// Takes that back. `NotFound` when it is not open.
    async fn recall(&self, by: &AccountId, id: &IssueId) -> Result<Issue, Problem>;

    /// Does the fix of one click. `NotFound` when it is not open, `Conflict` when it has no fix, or what the fix itself refuses.
    async fn fix(&self, by: &AccountId, id: &IssueId) -> Result<(), Problem>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_back_as_itself() {
        for code in IssueCode::ALL {
            assert_eq!(IssueCode::from_stored(code.as_str()), Some(*code));
        }
        assert_eq!(IssueCode::from_stored("gremlins"), None);
    }
}
