//! Values that must never be printed: passwords, keys, session cookies, claim codes.

/// A secret value. `Debug` and `Display` print a marker; `expose` is the only way to the value, so each use can be found by name.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself. Do not log what comes out.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl Secret<String> {
    /// Compares in constant time with another text.
    #[must_use]
    pub fn matches(&self, other: &str) -> bool {
        use subtle::ConstantTimeEq;
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

impl<T> std::fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

impl<T> std::fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

impl<'de> serde::Deserialize<'de> for Secret<String> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logged_secret_shows_a_marker_only() {
        let s = Secret::new("vw_abc".to_owned());
        assert_eq!(format!("{s:?} {s}"), "[secret] [secret]");
        assert!(s.matches("vw_abc"));
        assert!(!s.matches("vw_abd"));
    }
}
