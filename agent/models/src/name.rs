//! Rules for the name a model is served under.
//!
//! In: what an admin typed, or a file name. Out: a name that is safe in URLs, JSON, command lines and logs, or a sentence. Pure.

use std::path::Path;

use warden_domain::{Problem, ProblemKind};

use crate::split;

/// Longest served name, in characters.
pub const LONGEST: usize = 100;

/// Checks a served name: 1 to 100 of letters, digits, `.`, `-`, `_`, and not dots alone, which are steps in a path.
///
/// # Errors
/// `Invalid` with what is allowed.
pub fn check(name: &str) -> Result<(), Problem> {
    let fine = !name.is_empty() && name.len() <= LONGEST && name.bytes().all(allowed) && name.bytes().any(|b| b != b'.');
    if fine {
        return Ok(());
    }
    let shown: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
    Err(Problem::new(ProblemKind::Invalid, format!("\"{shown}\" cannot be the name of a model."))
        .hint(format!("Use 1 to {LONGEST} letters, digits, dots, hyphens or underscores, and not dots alone."))
        .param("served_model_name"))
}

/// A served name made from a model's file name.
#[must_use]
pub fn suggest(path: &Path) -> String {
    let file = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = split::part_of(&file).map_or_else(|| file.strip_suffix(".gguf").unwrap_or(&file).to_owned(), |part| part.stem);
    let mut name = String::new();
    for c in stem.chars() {
        let c = if c.is_ascii() && allowed(c as u8) { c } else { '-' };
        if !(c == '-' && name.ends_with('-')) {
            name.push(c);
        }
    }
    name.truncate(LONGEST);
    let name = name.trim_matches('-');
    if check(name).is_err() { "model".to_owned() } else { name.to_owned() }
}

const fn allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_break_a_url_or_a_command_line_is_refused() {
        for bad in ["", ".", "..", "a b", "a/b", "a,b", "ä", "a\nb", "\u{1b}[31m", &"a".repeat(101)] {
            let problem = check(bad).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::Invalid, "{bad:?}");
            assert!(!problem.message.contains('\u{1b}'));
        }
        check("Qwen3-30B_a3b.Q4").unwrap();
    }

    #[test]
    fn a_file_name_becomes_a_name_people_recognise() {
        assert_eq!(suggest(Path::new("/m/SmolLM2-135M-Instruct.Q4_1.gguf")), "SmolLM2-135M-Instruct.Q4_1");
        assert_eq!(suggest(Path::new("/m/Big Model (v2)-00001-of-00003.gguf")), "Big-Model-v2");
        assert_eq!(suggest(Path::new("/m/模型.gguf")), "model");
        for path in ["/m/a.gguf", "/m/模型 1.gguf", "/m/.gguf", "/m/...gguf", "/m/...gguf.gguf"] {
            check(&suggest(Path::new(path))).unwrap();
        }
    }
}
