//! The languages of the console and the choice between them. The texts themselves are generated from `messages/*.toml` by build.rs:
//! a field per message, a method per message with blanks.

include!(concat!(env!("OUT_DIR"), "/messages.rs"));

/// A language of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lang {
    /// English.
    En,
    /// Hindi.
    Hi,
}

impl Lang {
    pub(crate) const ALL: [Self; 2] = [Self::En, Self::Hi];

    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::Hi => "hi",
        }
    }

    pub(crate) const fn short(self) -> &'static str {
        match self {
            Self::En => "EN",
            Self::Hi => "हि",
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::En => "English",
            Self::Hi => "हिन्दी",
        }
    }

    pub(crate) const fn text(self) -> &'static Text {
        match self {
            Self::En => &EN,
            Self::Hi => &HI,
        }
    }

    pub(crate) fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lang| lang.code() == code)
    }

    /// The first language of an `Accept-Language` header that the console speaks, by quality; English when there is none.
    pub(crate) fn accepted(header: &str) -> Self {
        let mut wanted: Vec<(f32, usize, &str)> = header
            .split(',')
            .enumerate()
            .filter_map(|(place, part)| {
                let mut pieces = part.trim().split(';');
                let code = pieces.next()?.split('-').next()?.trim();
                let quality = pieces.find_map(|p| p.trim().strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok())?;
                (quality > 0.0).then_some((quality, place, code))
            })
            .collect();
        wanted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        wanted.into_iter().find_map(|(_, _, code)| Self::from_code(&code.to_ascii_lowercase())).unwrap_or(Self::En)
    }

    /// Whether a count takes the singular: in English only 1, in Hindi also 0.
    const fn is_one(self, n: u64) -> bool {
        match self {
            Self::En => n == 1,
            Self::Hi => n <= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_set_to_hindi_gets_hindi() {
        assert_eq!(Lang::accepted("hi-IN,hi;q=0.9,en;q=0.8"), Lang::Hi);
        assert_eq!(Lang::accepted("fr, en;q=0.5, hi;q=0.9"), Lang::Hi);
        assert_eq!(Lang::accepted("en-GB,hi;q=0.3"), Lang::En);
    }

    #[test]
    fn a_browser_with_no_known_language_gets_english() {
        for header in ["", "fr", "hi;q=0", "*", ";;;,q=", "hi;q=x"] {
            assert_eq!(Lang::accepted(header), Lang::En, "{header}");
        }
    }

    #[test]
    fn one_request_is_not_called_requests() {
        assert_eq!(EN.home_keys_line(1), "1 active key.");
        assert_eq!(EN.home_keys_line(0), "0 active keys.");
        assert_eq!(HI.home_keys_line(0), "0 सक्रिय कुंजी।");
    }
}
