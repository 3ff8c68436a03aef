//! One line of the engine's log: `0.00.017.182 E function: text`.

/// How serious the engine says a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Progress.
    Info,
    /// Something odd.
    Warning,
    /// An error.
    Error,
    /// The line carries no level: output of a library, of the system, or a part of a longer text.
    Unmarked,
}

/// A line taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Its level.
    pub level: Level,
    /// What it says, without time and level.
    pub text: &'a str,
}

/// Takes a line apart. A line of any other form comes back whole and unmarked.
#[must_use]
pub fn parse(line: &str) -> Line<'_> {
    let whole = Line { level: Level::Unmarked, text: line };
    let Some((time, rest)) = line.split_once(' ') else { return whole };
    let stamped = time.len() >= 12 && time.bytes().all(|b| b.is_ascii_digit() || b == b'.') && time.bytes().filter(|&b| b == b'.').count() == 3;
    let level = match rest.as_bytes() {
        [b'I' | b'D', b' ', ..] => Level::Info,
        [b'W', b' ', ..] => Level::Warning,
        [b'E', b' ', ..] => Level::Error,
        _ => return whole,
    };
    if stamped { Line { level, text: rest[2..].trim_start() } } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_read_only_where_the_engine_wrote_one() {
        assert_eq!(parse("0.00.017.182 E load: broke"), Line { level: Level::Error, text: "load: broke" });
        assert_eq!(parse("12.34.567.890 I srv  start: x").level, Level::Info);
        for plain in ["E load: a prompt said this", "1.2 E x", "", "error: invalid argument: --x", "0.00.017.182 Elephants"] {
            assert_eq!(parse(plain), Line { level: Level::Unmarked, text: plain });
        }
    }
}
