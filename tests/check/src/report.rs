//! The lines a run prints: one per case, one of figures, one about a deliberate break. Pure.

use crate::list::Standing;
use crate::result::CaseResult;

/// `ok    chat-stream             3.2 s  what was seen`.
#[must_use]
pub fn case_line(id: &str, result: &CaseResult, seconds: f64) -> String {
    let word = if result.passed { "ok" } else { "FAIL" };
    let figures: String = result.figures.iter().map(|(name, value)| format!("  {name}={}", number(*value))).collect();
    format!("{word:<4}  {id:<26} {seconds:>7.1} s{figures}  {}", one_line(result.headline(), 220))
}

/// All thresholds with what was measured.
#[must_use]
pub fn figures_line(standings: &[(String, f64, Standing)]) -> String {
    let parts: Vec<String> = standings
        .iter()
        .map(|(name, limit, standing)| match standing {
            Standing::Met(value) => format!("{name} {} (at most {})", number(*value), number(*limit)),
            Standing::Missed(value) => format!("{name} {} (MISSED: at most {})", number(*value), number(*limit)),
            Standing::NotMeasured => format!("{name} not measured (at most {})", number(*limit)),
        })
        .collect();
    format!("figures: {}", parts.join(", "))
}

/// Whether a deliberate break was seen.
#[must_use]
pub fn sabotage_line(id: &str, detected: bool, result: Option<&CaseResult>) -> String {
    let said = result.map(|r| one_line(r.headline(), 220)).unwrap_or_default();
    if detected { format!("sabotage {id}: detected ({said})") } else { format!("sabotage {id}: NOT detected ({said})") }
}

fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn one_line(text: &str, longest: usize) -> String {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if flat.chars().count() <= longest { flat } else { flat.chars().take(longest - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_by_its_cause_on_one_line() {
        let mut result = CaseResult::new("l");
        result.expect(true, "came up");
        result.expect(false, "answers\nwith a key");
        assert!(case_line("chat-stream", &result, 3.21).contains("FAIL  chat-stream"));
        assert!(case_line("chat-stream", &result, 3.21).ends_with("NOT MET: answers with a key"));
    }

    #[test]
    fn an_unmeasured_figure_is_never_shown_as_zero() {
        let line = figures_line(&[("ci_minutes".to_owned(), 60.0, Standing::NotMeasured), ("run_warm_s".to_owned(), 5.0, Standing::Met(1.5))]);
        assert_eq!(line, "figures: ci_minutes not measured (at most 60), run_warm_s 1.5 (at most 5)");
    }
}
