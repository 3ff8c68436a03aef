//! What somebody at the screen can do: a small machine of states. (state, key) goes in, (state, effects) comes out; nothing here knows
//! a terminal, a bus or a clock.
//!
//! Everything that stops or removes something asks for a whole word first. Noise on a serial line or a cat on the keyboard cannot type it.

use crate::keys::Key;

/// What can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// Network reset.
    Network,
    /// Admin password reset.
    Admin,
    /// Restart.
    Reboot,
    /// Switch off.
    PowerOff,
    /// Factory reset; asks first what becomes of the models.
    Factory,
    /// Factory reset that leaves the models.
    FactoryKeep,
    /// Factory reset that removes the models.
    FactoryWipe,
    /// Install an update from a stick.
    Update,
}

/// The menu, in its order. Installing an update stands last, so that the numbers before it stay what they always were.
pub const MENU: &[Choice] = &[Choice::Network, Choice::Admin, Choice::Reboot, Choice::PowerOff, Choice::Factory, Choice::Update];
/// The question before a factory reset.
pub const MODELS: &[Choice] = &[Choice::FactoryKeep, Choice::FactoryWipe];

/// What is to be done outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Restart the machine.
    Reboot,
    /// Switch the machine off.
    PowerOff,
    /// Write the reset down, then restart the machine.
    Reset(Reset),
    /// Have the agent install an update from the stick that is plugged in.
    Update,
    /// Draw everything anew.
    Redraw,
}

/// A reset, in the words of the helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reset {
    /// `network`, `admin` or `factory`.
    pub scope: &'static str,
    /// Whether the model files stay; counts for `factory`.
    pub keep_models: bool,
}

/// Where somebody is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum State {
    /// The status alone.
    #[default]
    Status,
    /// A list of choices with one marked.
    List {
        /// The choices.
        items: &'static [Choice],
        /// The place of the marked one.
        marked: usize,
    },
    /// A word is being typed.
    Confirm {
        /// What for.
        choice: Choice,
        /// What is typed so far.
        typed: String,
        /// The last word was another one.
        wrong: bool,
    },
    /// It is being done.
    Working(Choice),
    /// What it came to.
    Told {
        /// A sentence.
        text: String,
    },
}

/// Most letters of a typed word.
const MAX_TYPED: usize = 20;

impl Choice {
    /// Its line in the menu.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Network => "Network reset: forget network settings, ask for an address by DHCP",
            Self::Admin => "Admin password reset: set a new password with a code shown here",
            Self::Reboot => "Restart the machine",
            Self::PowerOff => "Switch the machine off",
            Self::Factory => "Factory reset: remove settings, keys and accounts",
            Self::FactoryKeep => "Factory reset, keep the model files",
            Self::FactoryWipe => "Factory reset, remove the model files too",
            Self::Update => "Install an update from a stick",
        }
    }

    /// The word that confirms it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Admin => "password",
            Self::Reboot => "restart",
            Self::PowerOff => "off",
            Self::Factory | Self::FactoryKeep => "reset",
            Self::FactoryWipe => "erase",
            Self::Update => "update",
        }
    }

    /// What it will do, line by line.
    #[must_use]
    pub const fn plan(self) -> &'static [&'static str] {
        match self {
            Self::Network => &[
                "Every stored network profile is removed; each wired port asks for an address by DHCP.",
                "Accounts, keys, models and settings stay. The machine restarts.",
            ],
            Self::Admin => &[
                "The passwords of all admins stop working and everybody is signed out.",
                "After the restart a code on this screen lets an admin set a new password in the browser.",
                "Keys, models and settings stay. Setup does not open again. The machine restarts.",
            ],
            Self::Update => &[
                "The signed bundle on the stick (.wob, or a channel folder) is checked; its system is written to the slot that does not run.",
                "The machine then restarts and tries it. If it is not healthy, the machine goes back by itself.",
                "Settings, keys and models stay. Engines and models in the bundle are added.",
            ],
            Self::Reboot => &["Requests that run get a moment to finish, then end. Models that were loaded come back."],
            Self::PowerOff => &["Requests that run get a moment to finish, then end. Press the power button to start again."],
            Self::Factory | Self::FactoryKeep => &[
                "Accounts, keys, settings, network profiles, records and this machine's identity are removed.",
                "Model files on the data partition and the installed system stay. Disks that were added are left as they are.",
                "The machine restarts and is set up anew with a claim code.",
            ],
            Self::FactoryWipe => &[
                "Accounts, keys, settings, network profiles, records and this machine's identity are removed.",
                "The model files on the data partition are removed too. Disks that were added are left as they are.",
                "The machine restarts and is set up anew with a claim code.",
            ],
        }
    }

    const fn effect(self) -> Effect {
        match self {
            Self::Network => Effect::Reset(Reset { scope: "network", keep_models: true }),
            Self::Admin => Effect::Reset(Reset { scope: "admin", keep_models: true }),
            Self::Reboot => Effect::Reboot,
            Self::PowerOff => Effect::PowerOff,
            Self::Factory | Self::FactoryKeep => Effect::Reset(Reset { scope: "factory", keep_models: true }),
            Self::FactoryWipe => Effect::Reset(Reset { scope: "factory", keep_models: false }),
            Self::Update => Effect::Update,
        }
    }
}

impl State {
    /// What a key does.
    #[must_use]
    pub fn press(self, key: Key) -> (Self, Option<Effect>) {
        if key == Key::Redraw {
            return (self, Some(Effect::Redraw));
        }
        match self {
            Self::Status => (from_status(key), None),
            Self::List { items, marked } => (in_list(items, marked, key), None),
            Self::Confirm { choice, typed, .. } => in_word(choice, typed, key),
            Self::Working(choice) => (Self::Working(choice), None),
            Self::Told { text } => (if matches!(key, Key::Enter | Key::Back) { Self::Status } else { Self::Told { text } }, None),
        }
    }

    /// Nobody pressed a key for a while: a half-typed word must not wait for the next visitor.
    #[must_use]
    pub fn idle(self) -> Self {
        if matches!(self, Self::Working(_)) { self } else { Self::Status }
    }

    /// The effect of this state was tried; a sentence says what became of it.
    #[must_use]
    pub fn told(self, text: String) -> Self {
        Self::Told { text }
    }
}

/// The short way to an update, for whoever stands there with a stick.
fn from_status(key: Key) -> State {
    match key {
        Key::Enter | Key::Letter('m' | 'M') => open(MENU),
        Key::Letter('u' | 'U') => State::Confirm { choice: Choice::Update, typed: String::new(), wrong: false },
        _ => State::Status,
    }
}

const fn open(items: &'static [Choice]) -> State {
    State::List { items, marked: 0 }
}

fn in_list(items: &'static [Choice], marked: usize, key: Key) -> State {
    let last = items.len().saturating_sub(1);
    match key {
        Key::Up => State::List { items, marked: marked.checked_sub(1).unwrap_or(last) },
        Key::Down => State::List { items, marked: if marked >= last { 0 } else { marked + 1 } },
        Key::Enter => choose(items.get(marked).copied(), items, marked),
        Key::Letter(letter @ '1'..='9') => {
            let place = letter as usize - '1' as usize;
            choose(items.get(place).copied(), items, marked)
        }
        Key::Back | Key::Letter('0' | 'q' | 'Q') => State::Status,
        Key::Letter(_) | Key::Erase | Key::Redraw => State::List { items, marked },
    }
}

fn choose(choice: Option<Choice>, items: &'static [Choice], marked: usize) -> State {
    match choice {
        Some(Choice::Factory) => open(MODELS),
        Some(choice) => State::Confirm { choice, typed: String::new(), wrong: false },
        None => State::List { items, marked },
    }
}

fn in_word(choice: Choice, mut typed: String, key: Key) -> (State, Option<Effect>) {
    match key {
        Key::Back => return (State::Status, None),
        Key::Enter if typed.trim().eq_ignore_ascii_case(choice.word()) => return (State::Working(choice), Some(choice.effect())),
        Key::Enter => {
            let wrong = !typed.trim().is_empty();
            return (State::Confirm { choice, typed: String::new(), wrong }, None);
        }
        Key::Erase => {
            typed.pop();
        }
        Key::Letter(letter) if typed.len() < MAX_TYPED => typed.push(letter),
        Key::Letter(_) | Key::Up | Key::Down | Key::Redraw => {}
    }
    (State::Confirm { choice, typed, wrong: false }, None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keys::Keys;

    /// Types text from a state; gives the state and all effects.
    fn typed(state: State, text: &str) -> (State, Vec<Effect>) {
        let mut effects = Vec::new();
        let state = Keys::default().feed(text.as_bytes()).into_iter().fold(state, |state, key| {
            let (state, effect) = state.press(key);
            effects.extend(effect);
            state
        });
        (state, effects)
    }

    #[test]
    fn a_serial_line_reaches_everything_with_digits_and_words() {
        for (text, effect) in [
            ("m1network\r", Effect::Reset(Reset { scope: "network", keep_models: true })),
            ("m2password\r", Effect::Reset(Reset { scope: "admin", keep_models: true })),
            ("m3restart\r", Effect::Reboot),
            ("m4OFF\r", Effect::PowerOff),
            ("m51reset\r", Effect::Reset(Reset { scope: "factory", keep_models: true })),
            ("m52erase\r", Effect::Reset(Reset { scope: "factory", keep_models: false })),
            ("m6update\r", Effect::Update),
            ("uupdate\r", Effect::Update),
        ] {
            let (state, effects) = typed(State::Status, text);
            assert_eq!(effects, [effect], "{text}");
            assert!(matches!(state, State::Working(_)));
        }
    }

    #[test]
    fn a_keyboard_reaches_the_same_with_arrow_keys() {
        assert_eq!(typed(State::Status, "\r\x1b[B\x1b[Brestart\r").1, []);
        assert_eq!(typed(State::Status, "\r\x1b[B\x1b[B\rrestart\r").1, [Effect::Reboot]);
        assert_eq!(typed(State::Status, "\r\x1b[A\x1b[A\r\x1b[B\rerase\r").1, [Effect::Reset(Reset { scope: "factory", keep_models: false })]);
    }

    #[test]
    fn the_word_of_one_thing_does_not_confirm_another() {
        for text in ["m1erase\r", "m2\r", "m3reboo\r", "m4o\r", "m51erase\r", "m52reset\r", "m3restartx\r", "m3rest\x03art\r"] {
            assert_eq!(typed(State::Status, text).1, [], "{text}");
        }
        let (state, _) = typed(State::Status, "m3no\r");
        assert_eq!(state, State::Confirm { choice: Choice::Reboot, typed: String::new(), wrong: true });
        assert_eq!(typed(state, "restar\x7frt\r").1, [Effect::Reboot]);
    }

    #[test]
    fn the_way_back_is_open_everywhere() {
        for text in ["m", "m3", "m3res", "m5", "m52era"] {
            let (state, _) = typed(State::Status, text);
            assert_eq!(state.clone().press(Key::Back), (State::Status, None), "{text}");
            assert_eq!(state.idle(), State::Status, "{text}");
        }
    }

    #[test]
    fn what_is_under_way_is_not_asked_for_twice() {
        let (state, effects) = typed(State::Status, "m3restart\r\r\rm3restart\r");
        assert_eq!(effects, [Effect::Reboot]);
        assert_eq!(state.idle(), State::Working(Choice::Reboot));
    }

    proptest! {
        #[test]
        fn keys_without_the_whole_word_never_do_anything(text in "[m0-9\r\u{7f}a-d]{0,60}") {
            // No confirming word can be spelled with these letters.
            prop_assert_eq!(typed(State::Status, &text).1, []);
        }

        #[test]
        fn every_state_can_be_pressed_and_left(keys in "[ -~\r\n\u{8}\u{1b}\\[AB]{0,80}") {
            let (state, _) = typed(State::Status, &keys);
            let left = matches!(state.clone().idle(), State::Status | State::Working(_));
            prop_assert!(left);
        }
    }
}
