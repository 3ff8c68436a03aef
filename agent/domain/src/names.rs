//! The name of the box on its network.

use async_trait::async_trait;
use serde::Serialize;

use crate::{Problem, ids::AccountId};

/// The name as a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NameDocument {
    /// What an admin set; `None` = the name the image gives.
    pub wanted: Option<String>,
    /// What the system says now; `None` when it cannot be asked.
    pub present: Option<String>,
    /// Why it cannot be set here, with the way out.
    pub unavailable: Option<String>,
}

/// The names room.
#[async_trait]
pub trait Names: Send + Sync {
    /// The name as wanted and as it is.
    async fn document(&self) -> NameDocument;

    /// The name in use, as last seen; never waits.
    fn present(&self) -> String;

    /// Stores a name and applies it now and at each start. `None` = back to the image's.
    ///
    /// # Errors
    /// `Invalid` for a name that is none; `SystemService` when the system refuses it.
    async fn set(&self, name: Option<String>, account: &AccountId) -> Result<NameDocument, Problem>;
}

/// Whether a text can be the name of a box: one label of letters, digits and dashes.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn check(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        return Err("it is empty");
    }
    if name.len() > 63 {
        return Err("it has more than 63 letters");
    }
    if name.contains('.') {
        return Err("it holds a dot; give the name only, without a domain");
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err("it may hold the letters a to z, digits and dashes only");
    }
    if name.starts_with('-') || name.ends_with('-') {
        return Err("it begins or ends with a dash");
    }
    if name.eq_ignore_ascii_case("localhost") {
        return Err("every machine calls itself that");
    }
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return Err("it holds digits only and would be taken for an address");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_break_dns_are_refused_with_the_reason() {
        for good in ["warden-1", "a", "GPU7", &"x".repeat(63)] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "a-", "a.b", "a b", "ä", "localhost", "1234", "a_b", &"x".repeat(64)] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
