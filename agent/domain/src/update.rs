//! Updates as pages, API and local screen see them: where the update stands, what is offered, what is set, and the port through which
//! one is fetched, installed, tried and gone back from.
//!
//! Values and the port only. Which step may follow which, and what may be taken by itself, is decided in `warden-updater`.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{Problem, ids::TaskId, units::Bytes};

/// Where the update stands. The words are those of `/state/update/record.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdatePhase {
    /// Nothing is under way.
    Idle,
    /// An image was chosen.
    Available,
    /// It is being fetched.
    Downloading,
    /// It lies here and was checked.
    Verified,
    /// It is being written to the other slot.
    Installing,
    /// It is the next one to start.
    Staged,
    /// It runs, or a restart into it was asked for.
    Trial,
    /// It runs and was found good.
    Confirmed,
    /// It was tried and the old system runs again.
    RolledBack,
}

impl UpdatePhase {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Available => "available",
            Self::Downloading => "downloading",
            Self::Verified => "verified",
            Self::Installing => "installing",
            Self::Staged => "staged",
            Self::Trial => "trial",
            Self::Confirmed => "confirmed",
            Self::RolledBack => "rolled_back",
        }
    }
}

/// How much the box does without being asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Automatic {
    /// It only looks and says what there is.
    #[default]
    Off,
    /// It fetches and checks; a person installs.
    Download,
    /// It installs and restarts within the window.
    Install,
}

impl Automatic {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Download => "download",
            Self::Install => "install",
        }
    }

    /// Reads the word back.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Off, Self::Download, Self::Install].into_iter().find(|a| a.as_str() == word)
    }
}

/// The time of day, in UTC, within which the box acts by itself. `from` after `to` runs over midnight; both the same is the whole day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Its begin, in minutes since midnight.
    pub from: u16,
    /// Its end, in minutes since midnight.
    pub to: u16,
}

impl Window {
    /// From `02:00` and `05:00`; `None` when one of them is no time of day.
    #[must_use]
    pub fn parse(from: &str, to: &str) -> Option<Self> {
        let minutes = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            let number = |part: &str| (part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse::<u16>().ok()).flatten();
            let (hour, minute) = (number(hour)?, number(minute)?);
            (hour < 24 && minute < 60).then_some(hour * 60 + minute)
        };
        Some(Self { from: minutes(from)?, to: minutes(to)? })
    }

    /// Its begin and end as `02:00`.
    #[must_use]
    pub fn words(self) -> (String, String) {
        let text = |minutes: u16| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        (text(self.from), text(self.to))
    }

    /// Whether a moment lies in it.
    #[must_use]
    pub fn contains(self, at: Timestamp) -> bool {
        let minute = at.as_second().rem_euclid(86_400) / 60;
        let (from, to) = (i64::from(self.from), i64::from(self.to));
        match from.cmp(&to) {
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Less => (from..to).contains(&minute),
            std::cmp::Ordering::Greater => minute >= from || minute < to,
        }
    }
}

/// What an admin decided about updates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateSettings {
    /// Where the channel is served; `None`: the box never asks anybody.
    #[serde(default)]
    pub channel_url: Option<String>,
    /// Which channel it follows.
    pub channel: String,
    /// How much it does without being asked.
    #[serde(default)]
    pub automatic: Automatic,
    /// When it may act by itself; `None` is at any time.
    #[serde(default)]
    pub window: Option<Window>,
    /// The most bytes a second; `None` is as fast as it goes.
    #[serde(default)]
    pub rate_limit: Option<Bytes>,
}

impl Default for UpdateSettings {
    fn default() -> Self {
        Self { channel_url: None, channel: "stable".to_owned(), automatic: Automatic::Off, window: None, rate_limit: None }
    }
}

/// Something that did not work, as a stable code and a sentence with its way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateFault {
    /// Stable code: one of the rules of trust, of RAUC, or of the updater.
    pub code: String,
    /// Cause, subject and way out.
    pub sentence: String,
    /// When.
    pub at: Timestamp,
}

/// When a release comes to this box by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaches {
    /// Now.
    Now,
    /// From then on.
    At(Timestamp),
    /// The publisher holds it back.
    Held,
}

/// What is offered: a system, or something else a release carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// `os`, `engine`, `model` or `driver`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its file, the handle for calls.
    pub sha256: String,
    /// Its size.
    pub bytes: Bytes,
    /// What changed, as plain text.
    pub notes: Option<String>,
    /// `newer`, `same`, `older` or `addition`.
    pub direction: &'static str,
    /// When it comes by itself.
    pub reaches: Reaches,
    /// Why this box may not take it; `None` when it may.
    pub refused: Option<UpdateFault>,
    /// Why it is not taken by itself: it fell back here.
    pub failed_before: Option<String>,
    /// True when its file lies here, checked.
    pub here: bool,
    /// True when it is in use already.
    pub installed: bool,
}

/// How far the step at work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateProgress {
    /// Bytes, or hundredths of the install.
    pub done: u64,
    /// Of how many.
    pub total: u64,
    /// True when the two are bytes.
    pub bytes: bool,
    /// Bytes a second of late; `None` before anybody knows.
    pub per_second: Option<u64>,
    /// Seconds until the end of the step at this rate.
    pub left_s: Option<u64>,
}

/// The attempt at work, or the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptView {
    /// The version it brings.
    pub version: String,
    /// The version it began from.
    pub from: String,
    /// SHA-256 of its file.
    pub sha256: String,
    /// Its size.
    pub bytes: Bytes,
    /// `channel`, `upload` or `stick`.
    pub origin: &'static str,
    /// True when nobody asked for it.
    pub automatic: bool,
    /// When it began.
    pub began_at: Timestamp,
}

/// One of the two system slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// `a` or `b`.
    pub slot: String,
    /// The version in it.
    pub version: Option<String>,
    /// Whether it may be started; `None` when nobody knows.
    pub good: Option<bool>,
    /// True when it runs now.
    pub running: bool,
    /// True when it is the next one to start.
    pub next: Option<bool>,
}

/// A system that fell back here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedVersion {
    /// Its version.
    pub version: String,
    /// SHA-256 of its file.
    pub sha256: String,
    /// Why, as one sentence.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// How often by now.
    pub falls: u32,
}

/// One line of what happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    /// When.
    pub at: Timestamp,
    /// The version that was tried.
    pub version: String,
    /// The version it began from.
    pub from: String,
    /// `confirmed`, `rolled_back`, `failed`, `cancelled`, `went_back` or `added`.
    pub outcome: String,
    /// Why, where there is a why.
    #[serde(default)]
    pub sentence: Option<String>,
}

/// One check of the health gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateCheck {
    /// Its stable name.
    pub code: String,
    /// `passed`, `failed` or `not_applicable`.
    pub outcome: &'static str,
    /// What was seen.
    pub sentence: String,
}

/// A file on its way here from a browser.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upload {
    /// Handle for calls.
    pub id: String,
    /// Name of the file.
    pub name: String,
    /// Its size.
    pub bytes: Bytes,
    /// How much of it is here and on the disk; the next piece begins there.
    pub received: Bytes,
    /// When it was begun.
    pub begun_at: Timestamp,
}

/// Everything about updates at one moment.
#[derive(Clone, Debug)]
pub struct UpdateView {
    /// The version that runs.
    pub version: String,
    /// The system slots; empty where there are none.
    pub slots: Vec<SlotView>,
    /// Why nothing can be installed on this machine; `None` on the appliance.
    pub cannot_install: Option<String>,
    /// What was decided.
    pub settings: UpdateSettings,
    /// When the channel was last asked, well or not.
    pub checked_at: Option<Timestamp>,
    /// When it is asked again by itself.
    pub next_check: Option<Timestamp>,
    /// Why the last look did not work.
    pub check_fault: Option<UpdateFault>,
    /// The newest release that was believed.
    pub release: Option<u64>,
    /// Why the channel counts as stale.
    pub stale: Option<String>,
    /// What it offers, systems first.
    pub offers: Vec<Offer>,
    /// Where the update stands.
    pub phase: UpdatePhase,
    /// The attempt at work, or the last one.
    pub attempt: Option<AttemptView>,
    /// How far its step is.
    pub progress: Option<UpdateProgress>,
    /// The work behind it.
    pub task: Option<TaskId>,
    /// Why the last attempt did not go on.
    pub fault: Option<UpdateFault>,
    /// Why the box went back, while that is the last thing that happened.
    pub went_back: Option<UpdateFault>,
    /// What the health gate saw at the last trial.
    pub gate: Vec<GateCheck>,
    /// Systems that fell back here.
    pub failed: Vec<FailedVersion>,
    /// What happened, the newest first.
    pub history: Vec<HistoryLine>,
    /// Files on their way here.
    pub uploads: Vec<Upload>,
}

/// Where an offline bundle is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stick {
    /// On this disk, by its handle.
    Disk(String),
    /// On the one removable disk that is plugged in.
    Any,
}

/// Updates, as api, pages and the local screen use them.
#[async_trait]
pub trait Updates: Send + Sync {
    /// Everything at this moment. Asks the update service for the slots, bounded in time.
    async fn view(&self) -> UpdateView;

    /// The phase and the version of the attempt. Never waits.
    fn standing(&self) -> (UpdatePhase, Option<String>);

    /// Stores what was decided. `Invalid` for an address, a channel or a window that is none; `Conflict` while an update is at work.
    async fn configure(&self, settings: UpdateSettings) -> Result<UpdateSettings, Problem>;

    /// Asks the channel; the task shows how it went. `Conflict` without an address or while work is going on.
    async fn check(&self) -> Result<TaskId, Problem>;

    /// Fetches, checks and installs what has this SHA-256 (`None`: the newest system), because a person wants it, also when it fell back
    /// before. `NotFound` when the release does not list it, `Conflict` while work is going on, `Invalid` when this box may not take it.
    async fn install(&self, sha256: Option<&str>) -> Result<TaskId, Problem>;

    /// Restarts into what is staged. `Conflict` when nothing is.
    async fn restart(&self) -> Result<(), Problem>;

    /// Ends what is at work at its next safe point, takes back what waits, or ends a trial that was found bad and has no system to go back
    /// to. `Conflict` while a slot is written or tried, while what was installed waits for a restart, or when nothing is there.
    async fn cancel(&self) -> Result<(), Problem>;

    /// Makes the other system the next one and restarts. `Conflict` when it cannot be started.
    async fn go_back(&self) -> Result<(), Problem>;

    /// Begins an upload. `Invalid` for a name or size that cannot be, `DiskFull`.
    async fn open_upload(&self, name: &str, bytes: Bytes) -> Result<Upload, Problem>;

    /// An upload. `NotFound`.
    async fn upload(&self, id: &str) -> Result<Upload, Problem>;

    /// Takes the next piece of an upload; it is on the disk when this returns. `Conflict` when `offset` is not where it stands.
    async fn put_upload(&self, id: &str, offset: u64, piece: &[u8]) -> Result<Upload, Problem>;

    /// Throws an upload away. `NotFound`.
    async fn drop_upload(&self, id: &str) -> Result<(), Problem>;

    /// Checks a whole upload and takes over what it carries; a system in it waits to be installed, or is with `install`.
    async fn take_upload(&self, id: &str, install: bool) -> Result<TaskId, Problem>;

    /// The same with a bundle on a stick.
    async fn take_from_stick(&self, stick: Stick, install: bool) -> Result<TaskId, Problem>;

    /// Called right before the machine is restarted or switched off, whoever asked: what is staged is then tried at the next start.
    async fn before_power(&self);

    /// Called when that did not happen after all: what is staged waits on.
    async fn power_failed(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64, minute: i64) -> Timestamp {
        Timestamp::from_second(86_400 * 20_000 + hour * 3600 + minute * 60).unwrap()
    }

    #[test]
    fn a_window_may_run_over_midnight() {
        let night = Window::parse("22:30", "05:00").unwrap();
        assert!(night.contains(at(23, 0)) && night.contains(at(4, 59)) && !night.contains(at(5, 0)) && !night.contains(at(22, 29)));
        let lunch = Window::parse("12:00", "13:00").unwrap();
        assert!(lunch.contains(at(12, 0)) && !lunch.contains(at(13, 0)));
        assert!(Window::parse("03:00", "03:00").unwrap().contains(at(17, 0)));
    }

    #[test]
    fn what_is_no_time_of_day_is_no_window() {
        for bad in ["24:00", "1:00", "01:60", "noon", "", "-1:00", "01:0x"] {
            assert!(Window::parse(bad, "02:00").is_none(), "{bad}");
        }
        assert_eq!(Window::parse("02:05", "23:59").unwrap().words(), ("02:05".to_owned(), "23:59".to_owned()));
    }
}
