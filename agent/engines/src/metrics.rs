//! The few series that are read of an engine's page of figures.
//!
//! Text of the Prometheus format in, values and labels out. Anything that is no sample is passed over.

use std::borrow::Cow;

/// One sample of a page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its value; never infinite and never no number.
    pub(crate) value: f64,
    labels: &'a str,
}

/// The samples of a page, in its order.
pub(crate) fn samples(page: &str) -> impl Iterator<Item = Sample<'_>> {
    page.lines().filter_map(sample)
}

/// The values of a series added up over its labels; `None` when the page has no such series.
pub(crate) fn sum(page: &str, name: &str) -> Option<f64> {
    samples(page).filter(|sample| sample.name == name).map(|sample| sample.value).reduce(|a, b| a + b)
}

/// The same as a whole number, such as a counter is.
pub(crate) fn count(page: &str, name: &str) -> Option<u64> {
    let sum = sum(page, name)?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to fit, and counters are whole")]
    (0.0..9e15).contains(&sum).then_some(sum.round() as u64)
}

/// The mean of a series over its labels.
pub(crate) fn mean(page: &str, name: &str) -> Option<f64> {
    let of = samples(page).filter(|sample| sample.name == name).count();
    #[allow(clippy::cast_precision_loss, reason = "a few engines")]
    sum(page, name).map(|sum| sum / of as f64)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => inside.split_at_checked(end_of_labels(inside)?).map(|(labels, rest)| (labels, rest.get(1..).unwrap_or_default()))?,
        None => ("", rest),
    };
    // A time may follow the value.
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some(Sample { name, value, labels })
}

/// Where the closing brace is that is not inside quotes.
fn end_of_labels(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (place, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => return Some(place),
            _ => {}
        }
    }
    None
}

impl Sample<'_> {
    /// The value of a label.
    pub(crate) fn label(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut rest = self.labels;
        while !rest.is_empty() {
            let (key, after) = rest.split_once("=\"")?;
            let mut escaped = false;
            let end = after.char_indices().find(|&(_, c)| {
                let closes = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                closes
            })?;
            let value = &after[..end.0];
            if key.trim_start_matches([',', ' ']) == name {
                return Some(if value.contains('\\') { unescaped(value).into() } else { value.into() });
            }
            rest = &after[end.0 + 1..];
        }
        None
    }
}

fn unescaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(c) = letters.next() {
        match c {
            '\\' => match letters.next() {
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => {}
            },
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_with_its_labels() {
        let page = "# HELP a b\n# TYPE a counter\na{x=\"1\",y=\"q\\\"}\\\\\"} 2.0\na{x=\"2\"} 3 1700000000\nb 1e3\nbad\nc NaN\nd{x=\"1\" 2\n\n";
        let all: Vec<Sample<'_>> = samples(page).collect();
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].label("y").as_deref(), Some("q\"}\\"));
        assert_eq!((all[1].label("x").as_deref(), all[1].label("y")), (Some("2"), None));
        assert_eq!((sum(page, "a"), mean(page, "a"), count(page, "b"), sum(page, "c")), (Some(5.0), Some(2.5), Some(1000), None));
    }

    #[test]
    fn rubbish_is_no_page() {
        for rubbish in ["", "{", "}", "a{", "a{\"} 1", "a{x=\"\\", "<html>", "\u{0}", "é{é=\"é\"} é"] {
            assert_eq!(samples(rubbish).count(), 0, "{rubbish}");
        }
    }
}
