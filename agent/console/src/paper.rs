//! How a screen comes onto a terminal: drawn anew on a virtual terminal, or as blocks of text on a serial line, where nothing that was
//! printed can be changed. Pure: the screen before and the screen now go in, text comes out.

use crate::screen::Frame;

/// The kind of terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paper {
    /// A screen that is drawn anew each time.
    Screen,
    /// A serial line or log: what is new is a block of its own.
    Roll,
}

impl Paper {
    /// A numbered virtual terminal is a screen, everything else a roll.
    #[must_use]
    pub fn of_terminal(name: &str) -> Self {
        let virtual_terminal = name.strip_prefix("tty").is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
        if virtual_terminal { Self::Screen } else { Self::Roll }
    }

    /// The text that turns the screen `before` into `now`; `before` is nothing when all is to be drawn anew.
    #[must_use]
    pub fn draw(self, before: Option<&Frame>, now: &Frame) -> String {
        if before == Some(now) {
            return String::new();
        }
        match self {
            Self::Screen => screen(now),
            Self::Roll => roll(before, now),
        }
    }
}

fn screen(now: &Frame) -> String {
    let mut text = String::from("\x1b[?25l\x1b[H\x1b[2J");
    for line in now.status.iter().chain(std::iter::once(&String::new())).chain(&now.dialog) {
        text.push_str(line);
        text.push('\n');
    }
    if let Some(typed) = &now.prompt {
        text.push_str(&format!("> {typed}\x1b[?25h"));
    }
    text
}

fn roll(before: Option<&Frame>, now: &Frame) -> String {
    let same_dialog = before.is_some_and(|before| before.dialog == now.dialog);
    match (&now.prompt, before.and_then(|before| before.prompt.as_ref())) {
        // Something is being typed: only what changed is echoed. The machine's own news wait until the question is answered.
        (Some(typed), Some(old)) if same_dialog => echo(old, typed),
        (Some(typed), _) => format!("\n{}\n> {typed}", now.dialog.join("\n")),
        (None, old) => {
            let open = now.dialog.len() > 1;
            let begun = if old.is_some() { "\n" } else { "" };
            if open && same_dialog {
                // The menu is open and only the machine's status changed.
                String::new()
            } else if open {
                format!("{begun}\n{}\n", now.dialog.join("\n"))
            } else {
                format!("{begun}\n{}\n{}\n", now.status.join("\n"), now.dialog.join("\n"))
            }
        }
    }
}

/// What a terminal needs to show another word in the place of one.
fn echo(old: &str, new: &str) -> String {
    let same = old.chars().zip(new.chars()).take_while(|(a, b)| a == b).count();
    let gone = old.chars().count() - same;
    let mut text = "\x08 \x08".repeat(gone);
    text.extend(new.chars().skip(same));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(status: &str, dialog: &[&str], prompt: Option<&str>) -> Frame {
        Frame { status: vec![status.into()], dialog: dialog.iter().map(ToString::to_string).collect(), prompt: prompt.map(str::to_owned) }
    }

    #[test]
    fn a_serial_line_gets_no_cursor_commands() {
        assert_eq!(Paper::of_terminal("tty1"), Paper::Screen);
        assert_eq!(Paper::of_terminal("ttyS0"), Paper::Roll);
        let text = Paper::Roll.draw(None, &frame("a", &["Type x", "y"], Some("er")));
        assert!(!text.contains('\x1b') && text.ends_with("> er"));
    }

    #[test]
    fn nothing_is_printed_while_nothing_changes() {
        let now = frame("a", &["hint"], None);
        assert_eq!(Paper::Roll.draw(Some(&now), &now), "");
        assert_eq!(Paper::Screen.draw(Some(&now), &now), "");
    }

    #[test]
    fn typed_letters_are_echoed_one_by_one_on_a_serial_line() {
        let at = |typed: &str, status: &str| frame(status, &["q", "Type x"], Some(typed));
        assert_eq!(Paper::Roll.draw(Some(&at("er", "a")), &at("era", "a")), "a");
        assert_eq!(Paper::Roll.draw(Some(&at("era", "a")), &at("er", "a")), "\x08 \x08");
        assert_eq!(Paper::Roll.draw(Some(&at("er", "a")), &at("er", "changed")), "");
    }

    #[test]
    fn an_open_menu_is_not_torn_apart_by_news_on_a_serial_line() {
        let open = |status: &str| frame(status, &["> 1 x", "press"], None);
        assert_eq!(Paper::Roll.draw(Some(&open("a")), &open("b")), "");
        assert!(Paper::Roll.draw(Some(&open("b")), &frame("b", &["hint"], None)).contains("b\nhint"));
    }

    #[test]
    fn a_screen_shows_the_cursor_only_where_something_is_typed() {
        assert!(Paper::Screen.draw(None, &frame("a", &["q"], Some("x"))).ends_with("> x\x1b[?25h"));
        assert!(!Paper::Screen.draw(None, &frame("a", &["q"], None)).contains("\x1b[?25h"));
    }
}
