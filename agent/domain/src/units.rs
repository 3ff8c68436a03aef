//! Quantities with their unit in the type, so that bytes are never added to tokens.

use serde::{Deserialize, Serialize};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl std::ops::Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
                items.fold(Self(0), |a, b| a + b)
            }
        }
    };
}

unit!(
    /// A count of bytes.
    Bytes
);
unit!(
    /// A count of model tokens.
    Tokens
);
unit!(
    /// A duration in whole milliseconds, as stored and sent; running timers use `std::time::Duration`.
    Millis
);

unit!(
    /// Degrees Celsius, whole.
    Celsius
);
unit!(
    /// Electrical power in milliwatts.
    MilliWatts
);

impl std::fmt::Display for Bytes {
    /// Binary units with one decimal: `93.4 MiB`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMES: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        #[allow(clippy::cast_precision_loss, reason = "shown with one decimal only")]
        let mut value = self.0 as f64;
        let mut step = 0;
        while value >= 1024.0 && step < NAMES.len() - 1 {
            value /= 1024.0;
            step += 1;
        }
        if step == 0 { write!(f, "{} B", self.0) } else { write!(f, "{value:.1} {}", NAMES[step]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_people_write_them() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Bytes(97_933_721).to_string(), "93.4 MiB");
    }
}
