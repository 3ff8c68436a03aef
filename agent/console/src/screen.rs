//! What stands on the screen. The agent's status, or its silence, goes in; lines come out, and text for the kind of terminal. Whatever
//! others named (models, sentences) loses its control characters here, so that no name can paint over the screen or end a line.

use std::time::Duration;

use crate::agent::{Silence, Status};

const MAX_LINE: usize = 160;
const MAX_LIST: usize = 12;
/// How long a silent agent is taken to be still starting.
const STARTING: Duration = Duration::from_secs(90);

/// All that a screen is made of.
pub struct View<'a> {
    /// Version of the system.
    pub version: &'a str,
    /// The agent's word.
    pub status: Result<Status, Silence>,
    /// What the start of the machine has left for this screen.
    pub recovery: Option<String>,
    /// How long this screen is up.
    pub uptime: Duration,
}

impl View<'_> {
    /// The lines of the screen from the top.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let name = self.status.as_ref().map_or(String::new(), |status| format!(" · {}", status.name));
        let version = self.status.as_ref().map_or(self.version, |status| status.version.as_str());
        lines.push(clean(format!("LM Warden {}{name}", version.trim())));
        if let Some(reason) = &self.recovery {
            lines.push(String::new());
            lines.push("RECOVERY".to_owned());
            lines.extend(reason.lines().filter(|line| !line.starts_with("warden.")).map(clean));
            if reason.contains("warden.recovery=state") {
                lines.push("Nothing was erased and no new setup is offered. Check the disk and its cable, then restart the machine.".to_owned());
            }
        }
        lines.push(String::new());
        match &self.status {
            Ok(status) => tell(status, &mut lines),
            Err(_) if self.recovery.as_ref().is_some_and(|reason| reason.contains("warden.recovery=state")) => {}
            Err(Silence::NotThere) if self.uptime < STARTING => lines.push("Starting. The address appears here in a moment.".to_owned()),
            Err(silence) => {
                lines.push(clean(format!("The agent is not answering: {silence}.")));
                lines.push(
                    "It is started again by itself. If this stays for more than two minutes, restart the machine with its power button.".to_owned(),
                );
            }
        }
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
    match &status.claim_code {
        Some(code) => {
            lines.push(clean(format!("Claim code: {code}")));
            lines.push("Open the console in a browser and enter the claim code to set up this machine.".to_owned());
        }
        None => lines.push(clean(format!("Health: {}", status.health))),
    }
    lines.extend(status.sentences.iter().take(MAX_LIST).map(|sentence| clean(format!("- {sentence}"))));
    lines.extend(status.models.iter().take(MAX_LIST).map(|model| clean(format!("Model {}: {}", model.name, model.state))));
    if status.models.len() > MAX_LIST {
        lines.push(format!("and {} more models", status.models.len() - MAX_LIST));
    }
}

/// One printable line of bounded length.
fn clean(text: impl AsRef<str>) -> String {
    // Direction marks are no control characters to the language, but they too change what a reader sees.
    let hidden = |letter: &char| {
        letter.is_control() || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.as_ref().chars().filter(|letter| !hidden(letter)).take(MAX_LINE).collect()
}

/// The kind of terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paper {
    /// A screen that is drawn anew each time.
    Screen,
    /// A line printer or log: each change is a block of its own.
    Roll,
}

impl Paper {
    /// A numbered virtual terminal is a screen, everything else a roll.
    #[must_use]
    pub fn of_terminal(name: &str) -> Self {
        let virtual_terminal = name.strip_prefix("tty").is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
        if virtual_terminal { Self::Screen } else { Self::Roll }
    }

    /// The text that brings the lines onto this terminal.
    #[must_use]
    pub fn draw(self, lines: &[String]) -> String {
        let body = lines.join("\n");
        match self {
            Self::Screen => format!("\x1b[?25l\x1b[H\x1b[2J{body}\n"),
            Self::Roll => format!("\n{body}\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Model;

    fn status() -> Status {
        Status {
            name: "box".into(),
            version: "1.0".into(),
            addresses: vec!["10.0.2.15".into()],
            console_urls: vec!["http://10.0.2.15:8080/".into()],
            claim_code: Some("ABCD-EFGH".into()),
            health: "ok".into(),
            sentences: Vec::new(),
            models: Vec::new(),
        }
    }

    fn lines(status: Result<Status, Silence>) -> Vec<String> {
        View { version: "1.0\n", status, recovery: None, uptime: Duration::from_secs(600) }.lines()
    }

    #[test]
    fn the_claim_code_stands_on_a_line_of_its_own() {
        assert!(lines(Ok(status())).contains(&"Claim code: ABCD-EFGH".to_owned()));
        let claimed = Status { claim_code: None, ..status() };
        let lines = lines(Ok(claimed));
        assert!(lines.contains(&"Health: ok".to_owned()) && !lines.iter().any(|line| line.contains("Claim")));
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
        assert!(silent.iter().any(|line| line.contains("restart the machine")));
        let early = View { version: "1.0", status: Err(Silence::NotThere), recovery: None, uptime: Duration::from_secs(1) }.lines();
        assert!(early.iter().any(|line| line.starts_with("Starting")));
    }

    #[test]
    fn an_unreadable_state_says_that_nothing_was_erased() {
        let recovery = Some("warden.recovery=state\nThe state partition cannot be read: bad block\n".to_owned());
        let lines = View { version: "1.0", status: Err(Silence::NotThere), recovery, uptime: Duration::ZERO }.lines();
        assert!(lines.contains(&"The state partition cannot be read: bad block".to_owned()));
        assert!(lines.iter().any(|line| line.starts_with("Nothing was erased")));
        assert!(!lines.iter().any(|line| line.starts_with("Starting")));
    }

    #[test]
    fn a_serial_log_gets_no_cursor_commands() {
        assert_eq!(Paper::of_terminal("tty1"), Paper::Screen);
        assert_eq!(Paper::of_terminal("ttyS0"), Paper::Roll);
        assert!(!Paper::Roll.draw(&["a".into()]).contains('\x1b'));
    }
}
