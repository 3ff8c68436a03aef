//! What the box does without being asked, and when. Pure: settings, what is offered, where the update stands and the time in, one act out.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use warden_domain::update::{Automatic, UpdateSettings};
use warden_trust::{Direction, Reach, Refusal};
use warden_update_record::{Asked, Phase};

/// How often a channel is asked.
pub const CHECK_EVERY: Duration = Duration::from_secs(6 * 3600);
/// After a look that did not work it is tried again so soon.
pub const CHECK_AGAIN: Duration = Duration::from_secs(1800);
/// A transfer that broke off is taken up again after so long.
pub const FETCH_AGAIN: Duration = Duration::from_secs(300);

/// What is known about the newest system of the release.
#[derive(Clone, Debug)]
pub struct OfferFacts {
    /// Which way it leads.
    pub direction: Direction,
    /// When it reaches this box by itself.
    pub reach: Reach,
    /// Whether the channel is alive.
    pub fresh: Result<(), Refusal>,
    /// Whether it fell back here.
    pub quarantine: Result<(), Refusal>,
}

/// The moment.
#[derive(Clone, Debug)]
pub struct Situation<'a> {
    /// What an admin decided.
    pub settings: &'a UpdateSettings,
    /// Where the update stands.
    pub phase: Phase,
    /// Who began the attempt; `None` without one.
    pub asked: Option<Asked>,
    /// The newest system; `None` when the release has none for this box.
    pub offer: Option<&'a OfferFacts>,
    /// When a transfer last broke off.
    pub broke_off: Option<Timestamp>,
    /// True when the attempt failed in a way that trying again does not mend.
    pub gave_up: bool,
    /// Now.
    pub now: Timestamp,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing, because of this.
    Wait(Why),
    /// Begin with the newest system.
    Begin,
    /// Take the transfer up again.
    Fetch,
    /// Install what lies here.
    Install,
    /// Restart into it.
    Restart,
}

/// Why nothing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was not told to.
    Off,
    /// Nothing newer is offered.
    Nothing,
    /// The channel is stale.
    Stale,
    /// The rollout has not reached this box.
    Wave,
    /// It fell back here.
    Quarantined,
    /// It is not the time of day.
    Window,
    /// It broke off a moment ago.
    Pause,
    /// A person goes on, or the trial does.
    Hands,
}

/// Decides.
#[must_use]
pub fn act(at: &Situation<'_>) -> Act {
    let settings = at.settings;
    let by_itself = at.asked == Some(Asked::Automatic);
    let open = settings.window.is_none_or(|window| window.contains(at.now));
    let rested = at.broke_off.is_none_or(|then| at.now.duration_since(then) >= signed(FETCH_AGAIN) || at.now < then);
    match at.phase {
        Phase::Available | Phase::Downloading => match (at.gave_up, by_itself, settings.automatic, open, rested) {
            (true, ..) => Act::Wait(Why::Hands),
            (_, true, Automatic::Off, ..) => Act::Wait(Why::Off),
            (_, true, _, false, _) => Act::Wait(Why::Window),
            (.., false) => Act::Wait(Why::Pause),
            _ => Act::Fetch,
        },
        Phase::Verified | Phase::Staged => match (by_itself && !at.gave_up, settings.automatic, open) {
            (false, ..) => Act::Wait(Why::Hands),
            (true, Automatic::Off | Automatic::Download, _) => Act::Wait(Why::Off),
            (true, Automatic::Install, false) => Act::Wait(Why::Window),
            (true, Automatic::Install, true) => {
                if at.phase == Phase::Verified {
                    Act::Install
                } else {
                    Act::Restart
                }
            }
        },
        Phase::Installing | Phase::Trial => Act::Wait(Why::Hands),
        Phase::Idle | Phase::Confirmed | Phase::RolledBack => begin(at, open),
    }
}

fn begin(at: &Situation<'_>, open: bool) -> Act {
    let Some(offer) = at.offer.filter(|offer| offer.direction == Direction::Newer) else { return Act::Wait(Why::Nothing) };
    match (at.settings.automatic, &offer.fresh, offer.reach, &offer.quarantine, open) {
        (Automatic::Off, ..) => Act::Wait(Why::Off),
        (_, Err(_), ..) => Act::Wait(Why::Stale),
        (_, _, Reach::At(_) | Reach::Held, ..) => Act::Wait(Why::Wave),
        (_, _, _, Err(_), _) => Act::Wait(Why::Quarantined),
        (.., false) => Act::Wait(Why::Window),
        _ => Act::Begin,
    }
}

/// When the channel is asked next: a while after the last look, a little later on each box than on another, so that they do not all
/// come at once. `None` without a channel.
#[must_use]
pub fn next_check(settings: &UpdateSettings, last: Option<(Timestamp, bool)>, started: Timestamp, machine: &str) -> Option<Timestamp> {
    settings.channel_url.as_ref()?;
    let place = machine.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let jitter = |of: Duration| SignedDuration::from_secs(i64::try_from(place % (of.as_secs() / 4).max(1)).unwrap_or(0));
    let after = |moment: Timestamp, wait: Duration| moment.checked_add(signed(wait) + jitter(wait)).unwrap_or(moment);
    Some(match last {
        None => after(started, Duration::from_secs(60)),
        Some((at, true)) => after(at, CHECK_EVERY),
        Some((at, false)) => after(at, CHECK_AGAIN),
    })
}

/// Whether the channel is to be asked now. A clock that ran back does not keep the box from asking.
#[must_use]
pub fn check_due(settings: &UpdateSettings, last: Option<(Timestamp, bool)>, started: Timestamp, machine: &str, now: Timestamp) -> bool {
    let Some(due) = next_check(settings, last, started, machine) else { return false };
    let ran_back = last.map_or(now < started, |(at, _)| now < at);
    settings.window.is_none_or(|window| window.contains(now)) && (now >= due || ran_back)
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::from_secs(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use warden_domain::update::Window;

    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(86_400 * 20_000 + hour * 3600).unwrap()
    }

    fn settings(automatic: Automatic) -> UpdateSettings {
        UpdateSettings { channel_url: Some("http://x".into()), automatic, window: Window::parse("02:00", "05:00"), ..UpdateSettings::default() }
    }

    fn offer() -> OfferFacts {
        OfferFacts { direction: Direction::Newer, reach: Reach::Now, fresh: Ok(()), quarantine: Ok(()) }
    }

    fn does(settings: &UpdateSettings, phase: Phase, asked: Option<Asked>, offer: &OfferFacts, hour: i64) -> Act {
        act(&Situation { settings, phase, asked, offer: Some(offer), broke_off: None, gave_up: false, now: at(hour) })
    }

    #[test]
    fn a_newer_system_is_taken_by_itself_only_when_told_alive_reached_never_failed_and_at_night() {
        let on = settings(Automatic::Install);
        assert_eq!(does(&on, Phase::Idle, None, &offer(), 3), Act::Begin);
        assert_eq!(does(&settings(Automatic::Off), Phase::Idle, None, &offer(), 3), Act::Wait(Why::Off));
        assert_eq!(does(&on, Phase::Idle, None, &offer(), 12), Act::Wait(Why::Window));
        assert_eq!(does(&on, Phase::Idle, None, &OfferFacts { direction: Direction::Older, ..offer() }, 3), Act::Wait(Why::Nothing));
        assert_eq!(does(&on, Phase::Idle, None, &OfferFacts { reach: Reach::Held, ..offer() }, 3), Act::Wait(Why::Wave));
        let stale = Err(Refusal::Stale { expires: at(0), now: at(1) });
        assert_eq!(does(&on, Phase::Idle, None, &OfferFacts { fresh: stale, ..offer() }, 3), Act::Wait(Why::Stale));
        let failed = Err(Refusal::Quarantined { version: "1.0".parse().unwrap(), reason: "X.".into() });
        assert_eq!(does(&on, Phase::Idle, None, &OfferFacts { quarantine: failed, ..offer() }, 3), Act::Wait(Why::Quarantined));
    }

    #[test]
    fn download_only_stops_before_the_install() {
        let only = settings(Automatic::Download);
        assert_eq!(does(&only, Phase::Idle, None, &offer(), 3), Act::Begin);
        assert_eq!(does(&only, Phase::Verified, Some(Asked::Automatic), &offer(), 3), Act::Wait(Why::Off));
        let all = settings(Automatic::Install);
        assert_eq!(does(&all, Phase::Verified, Some(Asked::Automatic), &offer(), 3), Act::Install);
        assert_eq!(does(&all, Phase::Staged, Some(Asked::Automatic), &offer(), 3), Act::Restart);
        assert_eq!(does(&all, Phase::Staged, Some(Asked::Automatic), &offer(), 12), Act::Wait(Why::Window));
    }

    #[test]
    fn what_a_person_began_is_never_restarted_by_the_clock_and_its_transfer_goes_on_by_day() {
        let all = settings(Automatic::Install);
        for phase in [Phase::Verified, Phase::Staged] {
            assert_eq!(does(&all, phase, Some(Asked::Person), &offer(), 3), Act::Wait(Why::Hands));
        }
        assert_eq!(does(&settings(Automatic::Off), Phase::Downloading, Some(Asked::Person), &offer(), 12), Act::Fetch);
        assert_eq!(does(&all, Phase::Downloading, Some(Asked::Automatic), &offer(), 12), Act::Wait(Why::Window));
    }

    #[test]
    fn a_transfer_that_broke_off_rests_before_it_goes_on() {
        let on = settings(Automatic::Install);
        let after = |minutes: i64| {
            let broke_off = Some(at(3));
            let now = Timestamp::from_second(at(3).as_second() + minutes * 60).unwrap();
            let situation =
                Situation { settings: &on, phase: Phase::Downloading, asked: Some(Asked::Automatic), offer: None, broke_off, gave_up: false, now };
            act(&situation)
        };
        assert_eq!((after(1), after(6)), (Act::Wait(Why::Pause), Act::Fetch));
    }

    #[test]
    fn a_clock_that_was_set_back_makes_the_box_ask_once_and_not_all_the_time() {
        let on = UpdateSettings { window: None, ..settings(Automatic::Off) };
        let due = |last, now| check_due(&on, last, at(5000), "m", now);
        assert!(due(Some((at(4990), true)), at(10)), "it ran back since the last look");
        assert!(!due(Some((at(10), true)), at(11)), "and was asked since; that the agent started in the future is long over");
        assert!(due(None, at(10)));
    }

    #[test]
    fn boxes_ask_at_moments_of_their_own_and_never_without_a_channel() {
        let mut on = settings(Automatic::Off);
        on.window = None;
        let last = Some((at(0), true));
        let moments: std::collections::BTreeSet<_> = (0..50).map(|n| next_check(&on, last, at(0), &format!("box-{n}")).unwrap()).collect();
        assert!(moments.len() > 25, "{}", moments.len());
        assert!(!check_due(&on, last, at(0), "box", at(5)) && check_due(&on, last, at(0), "box", at(8)));
        assert!(check_due(&on, last, at(0), "box", at(-30)), "a clock that ran back");
        on.channel_url = None;
        assert!(!check_due(&on, None, at(0), "box", at(100)));
    }
}
