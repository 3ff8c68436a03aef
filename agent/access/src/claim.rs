//! The claim code: proof that whoever makes the first admin can see the screen of the box.
//!
//! Pure: makes codes, reads what was typed, counts wrong tries. After ten of them a new code takes the place of the old one, so
//! that guessing never gets further than ten tries into 32^8 codes.

use warden_domain::{Secret, ids::random_bytes};

/// 32 characters that are not mistaken for each other: no I, O, 0, 1.
const ALPHABET: &[u8; 32] = b"ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// Wrong tries until the code changes.
const TRIES: u8 = 10;

/// What a try did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Try {
    /// It was the code.
    Right,
    /// It was not; so many tries are left for this code.
    Wrong {
        /// Tries left.
        left: u8,
    },
    /// It was not, and was the last: there is a new code now, which must be stored.
    Replaced,
}

/// The code in force and how often it was missed.
pub(crate) struct Claim {
    code: Secret<String>,
    wrong: u8,
}

impl Claim {
    /// A code read back from the store.
    pub(crate) fn with(code: String) -> Self {
        Self { code: Secret::new(code), wrong: 0 }
    }

    /// A fresh code, as `ABCD-EFGH`.
    pub(crate) fn fresh() -> Self {
        let text: String = random_bytes::<8>().iter().map(|b| char::from(ALPHABET[usize::from(b & 31)])).collect();
        Self::with(format!("{}-{}", &text[..4], &text[4..]))
    }

    /// The code as it is shown.
    pub(crate) const fn code(&self) -> &Secret<String> {
        &self.code
    }

    /// Judges one try and counts it.
    pub(crate) fn judge(&mut self, typed: &str) -> Try {
        if Secret::new(plain(self.code.expose())).matches(&plain(typed)) {
            return Try::Right;
        }
        self.wrong += 1;
        if self.wrong >= TRIES {
            *self = Self::fresh();
            return Try::Replaced;
        }
        Try::Wrong { left: TRIES - self.wrong }
    }
}

/// What was typed, without case, dashes and blanks.
fn plain(typed: &str) -> String {
    typed.chars().filter(|c| !c.is_whitespace() && *c != '-').take(64).map(|c| c.to_ascii_uppercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_taken_as_people_type_it() {
        for typed in ["ABCD-EFGH", "abcdefgh", " abcd efgh ", "ab-cd-ef-gh"] {
            assert_eq!(Claim::with("ABCD-EFGH".to_owned()).judge(typed), Try::Right, "{typed}");
        }
        for typed in ["", "ABCD-EFG", "ABCD-EFGHH", "ABCD-EFGJ"] {
            assert_eq!(Claim::with("ABCD-EFGH".to_owned()).judge(typed), Try::Wrong { left: 9 }, "{typed}");
        }
    }

    #[test]
    fn the_tenth_wrong_try_makes_the_old_code_worthless() {
        let mut claim = Claim::with("ABCD-EFGH".to_owned());
        for left in (1..TRIES).rev() {
            assert_eq!(claim.judge("XXXX-XXXX"), Try::Wrong { left });
        }
        assert_eq!(claim.judge("XXXX-XXXX"), Try::Replaced);
        assert_eq!(claim.judge("ABCD-EFGH"), Try::Wrong { left: 9 });
    }

    #[test]
    fn a_code_can_be_read_from_a_screen_without_mistakes() {
        let code = Claim::fresh().code().expose().clone();
        assert_eq!((code.len(), code.as_bytes()[4]), (9, b'-'));
        assert!(code.bytes().all(|b| b == b'-' || ALPHABET.contains(&b)));
        assert_ne!(code, *Claim::fresh().code().expose());
    }
}
