//! Root causes: a table of signs, and the weightiest one that a log shows.
//!
//! Error lines of one run in, a reason with a way out for the page. Causes stand in a table by weight: what everything else follows from
//! comes first.

use warden_domain::model::StateReason;

/// One cause.
pub(crate) struct Cause {
    /// Any of these in a line, in lower case.
    pub(crate) signs: &'static [&'static str],
    /// Stable code.
    pub(crate) code: &'static str,
    /// What happened.
    pub(crate) message: &'static str,
    /// What to do.
    pub(crate) hint: &'static str,
    /// A number that the line tells after these words, in lower case, and what to do with it (`{n}` is the number).
    pub(crate) figure: Option<(&'static str, &'static str)>,
}

/// Longest part of a log line shown in a reason, in characters.
const SHOWN: usize = 240;

/// The weightiest cause in these lines; of two lines with the same cause the first. `None` when none tells of one.
pub(crate) fn weightiest<'a>(table: &[Cause], lines: impl IntoIterator<Item = &'a str>) -> Option<StateReason> {
    let mut best: Option<(usize, &str)> = None;
    for line in lines {
        let lower = line.to_lowercase();
        if let Some(weight) = table.iter().position(|cause| cause.signs.iter().any(|sign| lower.contains(sign)))
            && best.is_none_or(|(found, _)| weight < found)
        {
            best = Some((weight, line));
        }
    }
    let (weight, line) = best?;
    let cause = table.get(weight)?;
    let hint = cause.figure.and_then(|(before, hint)| Some(hint.replace("{n}", &number_after(line, before)?)));
    Some(StateReason {
        code: cause.code.to_owned(),
        message: format!("{} It said: {}", cause.message, shown(line)),
        hint: Some(hint.unwrap_or_else(|| cause.hint.to_owned())),
    })
}

/// `… length is 2097024. Try` -> `2097024`. A number of 0 is none.
fn number_after(line: &str, before: &str) -> Option<String> {
    let lower = line.to_lowercase();
    let (_, after) = lower.split_once(before)?;
    let digits: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse::<u64>().ok().filter(|number| *number > 0).map(|number| number.to_string())
}

fn shown(line: &str) -> String {
    let clean: String = line.chars().filter(|c| !c.is_control()).collect();
    let collapsed = clean.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text: String = collapsed.chars().take(SHOWN).collect();
    if text.len() < collapsed.len() {
        text.push('…');
    } else if !text.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    text
}
