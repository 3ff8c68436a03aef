//! The same words again and again: finds out whether the end of a text repeats with some period, as the text comes in.
//!
//! Every so often the last bytes are looked for shortly before; the distance is a period to believe in, and from then on each byte is
//! compared with the one a period before it until one differs.

/// Longest period.
const PERIOD: usize = 1024;
/// So many last bytes are looked for.
const NEEDLE: usize = 48;
/// Bytes between two looks.
const PAUSE: usize = 64;
/// Bytes that are kept; what is older is let go in portions as large.
const KEPT: usize = PERIOD + NEEDLE;

/// See the module.
#[derive(Default)]
pub(super) struct Cycle {
    tail: Vec<u8>,
    /// The period believed in; 0: none.
    period: usize,
    /// Bytes at the end that repeat with it.
    run: usize,
    /// Bytes since the last look.
    pause: usize,
}

impl Cycle {
    /// Takes more text; true once its end repeats at least `cycles` times and over at least `bytes` bytes.
    pub(super) fn feed(&mut self, text: &[u8], cycles: usize, bytes: usize) -> bool {
        for &byte in text {
            if self.period > 0 {
                if self.tail.len().checked_sub(self.period).is_some_and(|at| self.tail[at] == byte) {
                    self.run += 1;
                    if self.run >= bytes && self.run >= self.period * cycles {
                        return true;
                    }
                } else {
                    (self.period, self.run) = (0, 0);
                }
            }
            if self.tail.len() >= 2 * KEPT {
                self.tail.drain(..KEPT);
            }
            self.tail.push(byte);
            self.pause += 1;
            if self.period == 0 && self.pause >= PAUSE {
                self.look();
            }
        }
        false
    }

    /// Bytes held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.tail.capacity()
    }

    fn look(&mut self) {
        self.pause = 0;
        let Some(at) = self.tail.len().checked_sub(NEEDLE) else { return };
        let needle = &self.tail[at..];
        if let Some(period) = (1..=PERIOD.min(at)).find(|back| self.tail[at - back..at - back + NEEDLE] == *needle) {
            (self.period, self.run) = (period, NEEDLE);
        }
    }
}
