//! One line of vLLM's log: `(EngineCore pid=9) INFO 11-29 17:02:51 [core.py:133] text`. Lines of libraries carry none of it.

/// How serious the engine says a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Progress.
    Info,
    /// Something odd.
    Warning,
    /// An error.
    Error,
    /// The line carries no level: output of a library or of Python itself.
    Unmarked,
}

/// A line taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// Its level.
    pub(crate) level: Level,
    /// What it says, without process, level, time and place.
    pub(crate) text: &'a str,
}

/// Takes a line apart. A line of any other form comes back whole and unmarked, apart from the process before it.
pub(crate) fn parse(line: &str) -> Line<'_> {
    let rest = without_process(line);
    let whole = Line { level: Level::Unmarked, text: rest };
    let Some((word, after)) = rest.split_once(' ') else { return whole };
    let level = match word {
        "DEBUG" | "INFO" => Level::Info,
        "WARNING" => Level::Warning,
        "ERROR" | "CRITICAL" => Level::Error,
        _ => return whole,
    };
    // `11-29 17:02:51 [core.py:133] text`
    let mut words = after.splitn(3, ' ');
    let (date, time, place) = (words.next().unwrap_or_default(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let stamped = digits_around(date, '-') && digits_around(time, ':');
    match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
        Some((_, text)) if stamped => Line { level, text: text.strip_prefix(' ').unwrap_or(text) },
        _ => whole,
    }
}

/// `(Worker_TP0 pid=12) text` -> `text`.
fn without_process(line: &str) -> &str {
    let Some((process, text)) = line.strip_prefix('(').and_then(|rest| rest.split_once(") ")) else { return line };
    let named = process.split_once(" pid=").is_some_and(|(_, pid)| !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()));
    if named { text } else { line }
}

fn digits_around(word: &str, mark: char) -> bool {
    word.contains(mark) && word.chars().all(|c| c.is_ascii_digit() || c == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_read_only_where_the_engine_wrote_one() {
        let line = parse("(EngineCore pid=24002) ERROR 11-29 17:10:41 [core.py:1510] ValueError: too long");
        assert_eq!(line, Line { level: Level::Error, text: "ValueError: too long" });
        assert_eq!(parse("WARNING 11-29 17:10:41 [a.py:1] x [y] z"), Line { level: Level::Warning, text: "x [y] z" });
        assert_eq!(parse("(Worker_TP0 pid=1) Loading safetensors"), Line { level: Level::Unmarked, text: "Loading safetensors" });
        for plain in
            ["INFO:     Application startup complete.", "ERROR a prompt said this", "(not pid=x) INFO", "", "(a) b", "ERROR 11-29 17:10:41 x"]
        {
            assert_eq!(parse(plain), Line { level: Level::Unmarked, text: plain });
        }
    }
}
