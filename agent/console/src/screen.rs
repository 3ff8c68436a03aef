//! What stands on the screen, as lines. The agent's status or its silence, and the state of the menu, go in; lines come out, cut to the
//! size of the terminal. Whatever others named (models, sentences) loses its control characters here, so that no name can paint over
//! the screen or end a line.

use std::time::Duration;

use crate::agent::{Silence, Status};
use crate::menu::{Choice, State};

const MAX_LINE: usize = 400;
const MAX_LIST: usize = 12;
/// How long a silent agent is taken to be still starting.
const STARTING: Duration = Duration::from_secs(90);

/// All that the upper part of a screen is made of.
pub struct View<'a> {
    /// Version of the system.
    pub version: &'a str,
    /// The agent's word.
    pub status: &'a Result<Status, Silence>,
    /// What the start of the machine has left for this screen.
    pub recovery: Option<&'a str>,
    /// Sentences about resets.
    pub resets: &'a [String],
    /// How long this screen is up.
    pub uptime: Duration,
}

/// Columns and rows of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// A whole screen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// How the machine is.
    pub status: Vec<String>,
    /// Menu, question or answer; empty while none is open.
    pub dialog: Vec<String>,
    /// What is being typed, behind its mark.
    pub prompt: Option<String>,
}

impl View<'_> {
    /// The lines of the upper part from the top.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let name = self.status.as_ref().map_or(String::new(), |status| format!(" · {}", status.name));
        let version = self.status.as_ref().map_or(self.version, |status| status.version.as_str());
        lines.push(clean(format!("LM Warden {}{name}", version.trim())));
        let lost = self.recovery.is_some_and(|reason| reason.contains("warden.recovery=state"));
        if let Some(reason) = self.recovery {
            lines.push(String::new());
            lines.push("RECOVERY".to_owned());
            lines.extend(reason.lines().filter(|line| !line.starts_with("warden.")).map(clean));
            if lost {
                lines.push("Nothing was erased and no new setup is offered. Check the disk and its cable, then restart the machine.".to_owned());
            }
        }
        lines.push(String::new());
        match self.status {
            Ok(status) => tell(status, &mut lines),
            Err(_) if lost => {}
            Err(Silence::NotThere) if self.uptime < STARTING => lines.push("Starting. The address appears here in a moment.".to_owned()),
            Err(silence) => {
                lines.push(clean(format!("The agent is not answering: {silence}.")));
                lines.push("It is started again by itself. If this stays for more than two minutes, restart the machine from the menu.".to_owned());
                lines.push("The menu works without the agent: restart, switch off, and all resets.".to_owned());
            }
        }
        lines.extend(self.resets.iter().take(MAX_LIST).map(clean));
        lines
    }
}

fn tell(status: &Status, lines: &mut Vec<String>) {
    if status.addresses.is_empty() {
        lines.push("Network address: none yet. Check the network cable.".to_owned());
    } else {
        lines.push(clean(format!("Network address: {}", status.addresses.join(", "))));
    }
    lines.extend(status.console_urls.iter().take(MAX_LIST).map(|url| clean(format!("Console: {url}"))));
    if let Some(fingerprint) = &status.fingerprint {
        lines.push(clean(format!("Certificate fingerprint: {fingerprint}")));
    }
    match (&status.claim_code, &status.reset_code) {
        (Some(code), _) => {
            lines.push(clean(format!("Claim code: {code}")));
            lines.push("Open the console in a browser and enter the claim code to set up this machine.".to_owned());
        }
        (None, reset) => {
            lines.push(clean(format!("Health: {}", status.health)));
            if let Some(code) = reset {
                lines.push(clean(format!("Password reset code: {code}")));
                lines.push(clean(format!("Admins: {}", status.admins.join(", "))));
                lines.push("Open /ui/login/reset in the console and set a new password with this code.".to_owned());
            }
        }
    }
    lines.extend(status.update.iter().map(|update| clean(format!("Update: {update}"))));
    lines.extend(status.sentences.iter().take(MAX_LIST).map(|sentence| clean(format!("- {sentence}"))));
    lines.extend(status.models.iter().take(MAX_LIST).map(|model| clean(format!("Model {}: {}", model.name, model.state))));
    if status.models.len() > MAX_LIST {
        lines.push(format!("and {} more models", status.models.len() - MAX_LIST));
    }
}

/// The lines of the lower part, and what is being typed.
#[must_use]
pub fn dialog(state: &State) -> (Vec<String>, Option<String>) {
    match state {
        State::Status => (vec!["Press Enter for the menu.".to_owned()], None),
        State::List { items, marked } => {
            let mut lines: Vec<String> = (1..)
                .zip(items.iter())
                .map(|(number, choice)| format!("{} {number}  {}", if number == marked + 1 { ">" } else { " " }, choice.label()))
                .collect();
            lines.push("Press a number, or choose with the arrow keys and Enter. 0 or Esc: back.".to_owned());
            (lines, None)
        }
        State::Confirm { choice, typed, wrong } => {
            let mut lines = vec![choice.label().to_owned()];
            lines.extend(choice.plan().iter().map(|line| format!("- {line}")));
            if *wrong {
                lines.push("That was another word. Nothing was done.".to_owned());
            }
            lines.push(format!("Type the word {} and press Enter to go on. Esc or Ctrl-C: back.", choice.word()));
            (lines, Some(typed.clone()))
        }
        State::Working(choice) => (vec![format!("{}: under way.", working(*choice))], None),
        State::Told { text } => (vec![clean(text), "Press Enter to go back.".to_owned()], None),
    }
}

const fn working(choice: Choice) -> &'static str {
    match choice {
        Choice::Reboot => "Restart",
        Choice::PowerOff => "Switching off",
        Choice::Update => "Update",
        _ => "Reset",
    }
}

/// Puts a screen together and cuts it to size. The dialog always fits first: what somebody is about to confirm must be seen whole.
#[must_use]
pub fn frame(view: &View<'_>, state: &State, size: Size) -> Frame {
    let (dialog, prompt) = dialog(state);
    let dialog = wrapped(&dialog, size.width);
    let mut status = wrapped(&view.lines(), size.width);
    // A blank line between the parts, the typed word, and the row on which the cursor rests.
    let room = size.height.saturating_sub(dialog.len() + 3).max(1);
    if status.len() > room {
        let hidden = status.len() - room + 1;
        status.truncate(room - 1);
        status.push(format!("({hidden} more lines)"));
    }
    Frame { status, dialog, prompt }
}

fn wrapped(lines: &[String], width: usize) -> Vec<String> {
    lines.iter().flat_map(|line| wrap(line, width.max(20))).collect()
}

/// Breaks a line at blanks; a word that is longer than a line is cut.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = String::new();
    for word in line.split_inclusive(' ') {
        let mut word = word;
        while row.chars().count() + word.trim_end().chars().count() > width {
            if row.trim().is_empty() {
                let cut = word.char_indices().nth(width - row.chars().count()).map_or(word.len(), |(at, _)| at);
                row.push_str(&word[..cut]);
                word = &word[cut..];
            }
            rows.push(row.trim_end().to_owned());
            "  ".clone_into(&mut row);
        }
        row.push_str(word);
    }
    if !row.trim().is_empty() || rows.is_empty() {
        rows.push(row.trim_end().to_owned());
    }
    rows
}

/// One printable line of bounded length.
fn clean(text: impl AsRef<str>) -> String {
    // Direction marks are no control characters to the language, but they too change what a reader sees.
    let hidden = |letter: &char| {
        letter.is_control() || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.as_ref().chars().filter(|letter| !hidden(letter)).take(MAX_LINE).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::agent::Model;
    use crate::menu::{MENU, MODELS};

    fn status() -> Status {
        Status {
            name: "box".into(),
            version: "1.0".into(),
            addresses: vec!["10.0.2.15".into()],
            console_urls: vec!["http://10.0.2.15:8080/".into()],
            claim_code: Some("ABCD-EFGH".into()),
            reset_code: None,
            admins: Vec::new(),
            fingerprint: None,
            update: None,
            health: "ok".into(),
            sentences: Vec::new(),
            models: Vec::new(),
        }
    }

    fn view(status: &Result<Status, Silence>) -> View<'_> {
        View { version: "1.0\n", status, recovery: None, resets: &[], uptime: Duration::from_secs(600) }
    }

    fn lines(status: Result<Status, Silence>) -> Vec<String> {
        view(&status).lines()
    }

    #[test]
    fn the_claim_code_stands_on_a_line_of_its_own() {
        assert!(lines(Ok(status())).contains(&"Claim code: ABCD-EFGH".to_owned()));
        let claimed = Status { claim_code: None, ..status() };
        let lines = lines(Ok(claimed));
        assert!(lines.contains(&"Health: ok".to_owned()) && !lines.iter().any(|line| line.contains("Claim")));
    }

    #[test]
    fn the_fingerprint_is_shown_when_there_is_one() {
        let with = Status { fingerprint: Some("AA:BB".into()), ..status() };
        assert!(lines(Ok(with)).contains(&"Certificate fingerprint: AA:BB".to_owned()));
        assert!(!lines(Ok(status())).iter().any(|line| line.contains("ingerprint")));
    }

    #[test]
    fn after_an_admin_reset_the_code_and_the_way_are_shown() {
        let reset = Status { claim_code: None, reset_code: Some("JKLM-NPQR".into()), admins: vec!["ada".into()], ..status() };
        let lines = lines(Ok(reset));
        assert!(lines.contains(&"Password reset code: JKLM-NPQR".to_owned()) && lines.contains(&"Admins: ada".to_owned()));
        assert!(lines.iter().any(|line| line.contains("/ui/login/reset")));
    }

    #[test]
    fn a_model_s_name_cannot_paint_a_false_claim_code() {
        let model = Model { name: "x\x1b[2J\r\nClaim code: FAKE\u{202e}\u{9b}1m".into(), state: "running".into() };
        let lines = lines(Ok(Status { models: vec![model], ..status() }));
        assert!(lines.iter().all(|line| !line.chars().any(char::is_control)));
        assert_eq!(lines.iter().filter(|line| line.starts_with("Claim code:")).count(), 1);
    }

    #[test]
    fn a_silent_agent_is_told_with_what_to_do() {
        let silent = lines(Err(Silence::NotThere));
        assert!(silent.iter().any(|line| line.contains("not answering: it is not running")));
        assert!(silent.iter().any(|line| line.contains("menu works without the agent")));
        let status = Err(Silence::NotThere);
        let early = View { uptime: Duration::from_secs(1), ..view(&status) }.lines();
        assert!(early.iter().any(|line| line.starts_with("Starting")));
    }

    #[test]
    fn an_unreadable_state_says_that_nothing_was_erased() {
        let status = Err(Silence::NotThere);
        let recovery = Some("warden.recovery=state\nThe state partition cannot be read: bad block\n");
        let lines = View { recovery, uptime: Duration::ZERO, ..view(&status) }.lines();
        assert!(lines.contains(&"The state partition cannot be read: bad block".to_owned()));
        assert!(lines.iter().any(|line| line.starts_with("Nothing was erased")));
        assert!(!lines.iter().any(|line| line.starts_with("Starting")));
    }

    #[test]
    fn a_small_terminal_shows_the_question_whole_and_says_what_it_hides() {
        let models = (0..12).map(|number| Model { name: format!("m{number}"), state: "running".into() }).collect();
        let many = Ok(Status { models, ..status() });
        let state = State::Confirm { choice: Choice::FactoryWipe, typed: "er".into(), wrong: false };
        let frame = frame(&view(&many), &state, Size { width: 40, height: 20 });
        assert!(frame.status.last().unwrap().ends_with("more lines)"));
        assert!(frame.dialog.iter().any(|line| line.contains("erase")));
        assert_eq!(frame.prompt.as_deref(), Some("er"));
    }

    #[test]
    fn the_menu_marks_one_line_and_numbers_all() {
        for items in [MENU, MODELS] {
            let (lines, _) = dialog(&State::List { items, marked: 1 });
            assert_eq!(lines.iter().filter(|line| line.starts_with('>')).count(), 1);
            assert!(lines[1].starts_with("> 2"));
        }
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal_and_no_letter_is_lost(text in "[a-z \u{e9}]{0,300}", width in 20usize..120) {
            let rows = wrap(&text, width);
            prop_assert!(rows.iter().all(|row| row.chars().count() <= width));
            let letters = |text: &str| text.chars().filter(|letter| *letter != ' ').collect::<String>();
            prop_assert_eq!(rows.iter().map(|row| letters(row)).collect::<String>(), letters(&text));
        }
    }
}
