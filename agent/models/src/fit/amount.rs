//! Numbers that are added and multiplied without ever wrapping: what grows beyond 64 bits is lost for good, and whoever asks is told so.

use std::{
    iter::Sum,
    ops::{Add, Mul},
};

use warden_domain::fit::KvType;

use super::shape::Missing;

/// A number, or nothing once it was more than 64 bits hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amount(Option<u64>);

impl Amount {
    /// The number.
    ///
    /// # Errors
    /// Names the figure that grew beyond all memory.
    pub(super) fn known(self, figure: &str) -> Result<u64, Missing> {
        self.0.ok_or_else(|| vec![format!("{figure}: its figures are beyond all memory")])
    }

    /// In whole steps, rounded up. A step of 0 is one of 1.
    pub(super) fn in_steps(self, step: u64) -> Self {
        Self(self.0.and_then(|number| number.checked_next_multiple_of(step.max(1))))
    }

    /// Divided and rounded up; by 0 is by 1.
    pub(super) fn over(self, parts: u64) -> Self {
        Self(self.0.map(|number| number.div_ceil(parts.max(1))))
    }

    pub(super) fn at_most(self, other: impl Into<Self>) -> Self {
        match (self.0, other.into().0) {
            (Some(a), Some(b)) => Self(Some(a.min(b))),
            (a, b) => Self(a.or(b)),
        }
    }

    pub(super) fn at_least(self, other: impl Into<Self>) -> Self {
        Self(self.0.zip(other.into().0).map(|(a, b)| a.max(b)))
    }

    /// Bytes of so many values of token memory.
    pub(super) fn as_kv(self, kv: KvType) -> Self {
        match kv {
            KvType::F16 => self * 2,
            KvType::Q8_0 => self.over(32) * 34,
            KvType::Q4_0 => self.over(32) * 18,
            KvType::Fp8 => self,
        }
    }
}

impl From<u64> for Amount {
    fn from(number: u64) -> Self {
        Self(Some(number))
    }
}

impl<A: Into<Self>> Add<A> for Amount {
    type Output = Self;

    fn add(self, other: A) -> Self {
        Self(self.0.zip(other.into().0).and_then(|(a, b)| a.checked_add(b)))
    }
}

impl<A: Into<Self>> Mul<A> for Amount {
    type Output = Self;

    fn mul(self, other: A) -> Self {
        Self(self.0.zip(other.into().0).and_then(|(a, b)| a.checked_mul(b)))
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::from(0), |a, b| a + b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grew_beyond_64_bits_never_comes_back_as_a_small_number() {
        let large = Amount::from(u64::MAX);
        let none = u64::MIN;
        for lost in [large + 1, large * 2, large.in_steps(16), (large + 1) * none, [large, large].into_iter().sum(), large.as_kv(KvType::F16)] {
            assert_eq!(lost.known("kv"), Err(vec!["kv: its figures are beyond all memory".to_owned()]));
        }
        assert_eq!((Amount::from(33).as_kv(KvType::Q8_0)).known("kv"), Ok(68));
        assert_eq!((large + 1).at_most(7).known("x"), Ok(7));
        assert!((large + 1).at_least(7).known("x").is_err());
    }

    #[test]
    fn bytes_of_values_are_those_of_the_format() {
        for kv in [KvType::F16, KvType::Q8_0, KvType::Q4_0, KvType::Fp8] {
            assert_eq!(Amount::from(1000).as_kv(kv).known("kv"), Ok(kv.bytes(1000)));
        }
    }
}
