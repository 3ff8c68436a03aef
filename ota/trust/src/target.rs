//! The bytes of a target: checked part by part while they arrive, so that a flipped byte costs one part, a power cut costs none, and a
//! source that sends too much or hardly anything is left.

use std::io::{self, Read};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::refusal::Refusal;
use crate::release::Entry;

/// Follows a target's bytes in order. After an error it stands again at the end of the last good part ([`PartCheck::good`]): cut the file
/// there and go on from there.
#[derive(Clone, Debug)]
pub struct PartCheck<'a> {
    entry: &'a Entry,
    whole: Sha256,
    whole_at_good: Sha256,
    part: Sha256,
    good_parts: u64,
    at: u64,
}

impl<'a> PartCheck<'a> {
    /// At the first byte.
    #[must_use]
    pub fn new(entry: &'a Entry) -> Self {
        Self { entry, whole: Sha256::new(), whole_at_good: Sha256::new(), part: Sha256::new(), good_parts: 0, at: 0 }
    }

    /// Reads what an earlier try left and stands at the end of its last good part. The file's length is not believed, only its content.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn resume(entry: &'a Entry, mut file: impl Read) -> io::Result<Self> {
        let mut check = Self::new(entry);
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let got = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(got) => got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            if check.feed(buffer.get(..got).unwrap_or_default()).is_err() {
                break;
            }
        }
        check.step_back();
        Ok(check)
    }

    /// Length of the parts that are known to be right, in bytes.
    #[must_use]
    pub fn good(&self) -> u64 {
        self.entry.part_range(self.good_parts).start
    }

    /// Bytes taken so far.
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.at
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// A part does not match, or there is more than the target has.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), Refusal> {
        while !bytes.is_empty() {
            let end = self.entry.part_range(self.good_parts).end;
            let room = usize::try_from(end - self.at).unwrap_or(usize::MAX).min(bytes.len());
            if room == 0 {
                self.step_back();
                return Err(Refusal::TooLong { subject: self.entry.subject(), expected: self.entry.bytes });
            }
            let (now, later) = bytes.split_at(room);
            self.whole.update(now);
            self.part.update(now);
            self.at += room as u64;
            if self.at == end {
                self.close_part()?;
            }
            bytes = later;
        }
        Ok(())
    }

    fn close_part(&mut self) -> Result<(), Refusal> {
        let found = Digest::from_raw(std::mem::take(&mut self.part).finalize().into());
        let listed = usize::try_from(self.good_parts).ok().and_then(|at| self.entry.parts.get(at));
        if listed != Some(&found) {
            let part = self.good_parts;
            self.step_back();
            return Err(Refusal::DamagedPart { subject: self.entry.subject(), part });
        }
        self.good_parts += 1;
        self.whole_at_good = self.whole.clone();
        Ok(())
    }

    /// Forgets the bytes after the last good part.
    pub fn step_back(&mut self) {
        self.at = self.good();
        self.whole = self.whole_at_good.clone();
        self.part = Sha256::new();
    }

    /// Says that the target ends here; only now may it be used.
    ///
    /// # Errors
    /// It ended too early, or the whole does not match.
    pub fn finish(self) -> Result<(), Refusal> {
        let subject = self.entry.subject();
        if self.at != self.entry.bytes {
            return Err(Refusal::CutShort { subject, got: self.at, expected: self.entry.bytes });
        }
        if Digest::from_raw(self.whole.finalize().into()) == self.entry.sha256 { Ok(()) } else { Err(Refusal::DamagedTarget { subject }) }
    }
}

/// Notices a source that hardly sends: less than `least` bytes within `window` ends the transfer.
#[derive(Clone, Debug)]
pub struct Pace {
    least: u64,
    window: Duration,
    since: Duration,
    bytes: u64,
}

impl Pace {
    /// At the start of a transfer.
    #[must_use]
    pub const fn new(least: u64, window: Duration) -> Self {
        Self { least, window, since: Duration::ZERO, bytes: 0 }
    }

    /// Called for each piece and at each tick: `elapsed` since the transfer began, `total` bytes by now.
    ///
    /// # Errors
    /// [`Refusal::TooSlow`].
    pub fn observe(&mut self, entry: &Entry, elapsed: Duration, total: u64) -> Result<(), Refusal> {
        if elapsed.saturating_sub(self.since) < self.window {
            return Ok(());
        }
        if total.saturating_sub(self.bytes) < self.least {
            return Err(Refusal::TooSlow { subject: entry.subject(), least: self.least, seconds: self.window.as_secs() });
        }
        (self.since, self.bytes) = (elapsed, total);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::{Kind, MIN_PART, Requires};
    use proptest::prelude::*;

    fn entry_of(content: &[u8]) -> Entry {
        let part = usize::try_from(MIN_PART).unwrap();
        Entry {
            kind: Kind::Engine,
            name: "engine".to_owned(),
            version: "b1".to_owned(),
            sha256: Digest::of(content),
            bytes: content.len() as u64,
            part_bytes: MIN_PART,
            parts: content.chunks(part).map(Digest::of).collect(),
            requires: Requires::default(),
            data_schema: None,
            manifest_hash: None,
            waves: Vec::new(),
            notes: None,
            licence: None,
            source: None,
        }
    }

    fn content(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect()
    }

    #[test]
    fn a_flipped_byte_costs_its_own_part_only() {
        let good = content(200_000);
        let entry = entry_of(&good);
        let mut bad = good.clone();
        bad[70_000] ^= 1;
        let mut check = PartCheck::new(&entry);
        assert!(matches!(check.feed(&bad), Err(Refusal::DamagedPart { part: 1, .. })));
        assert_eq!(check.good(), MIN_PART);
        check.feed(&good[65_536..]).unwrap();
        check.finish().unwrap();
    }

    #[test]
    fn a_long_file_with_a_bad_tail_is_resumed_from_its_last_good_part() {
        let good = content(200_000);
        let entry = entry_of(&good);
        let mut left = good.clone();
        left[140_000] ^= 1;
        assert_eq!(PartCheck::resume(&entry, &left[..]).unwrap().good(), 131_072, "the length alone would say 200000");
        assert_eq!(PartCheck::resume(&entry, &good[..100_000]).unwrap().good(), 65_536);
        assert_eq!(PartCheck::resume(&entry, &[0_u8; 500_000][..]).unwrap().good(), 0);
    }

    #[test]
    fn a_source_that_hardly_sends_is_left() {
        let entry = entry_of(&content(10));
        let mut pace = Pace::new(1000, Duration::from_secs(60));
        pace.observe(&entry, Duration::from_secs(59), 0).unwrap();
        pace.observe(&entry, Duration::from_secs(60), 1000).unwrap();
        pace.observe(&entry, Duration::from_secs(119), 1000).unwrap();
        assert!(matches!(pace.observe(&entry, Duration::from_secs(121), 1999), Err(Refusal::TooSlow { .. })));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn any_cutting_of_the_right_bytes_passes_and_any_other_length_does_not(bytes in 1_usize..300_000, cuts in prop::collection::vec(1_usize..90_000, 1..20)) {
            let good = content(bytes);
            let entry = entry_of(&good);
            let mut check = PartCheck::new(&entry);
            let mut rest = &good[..];
            for cut in cuts.iter().cycle() {
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                check.feed(now).unwrap();
                rest = later;
                if rest.is_empty() { break; }
            }
            let mut longer = check.clone();
            let long = matches!(longer.feed(b"x"), Err(Refusal::TooLong { .. }));
            prop_assert!(long);
            check.finish().unwrap();
            let mut short = PartCheck::new(&entry);
            short.feed(&good[..bytes - 1]).unwrap();
            let cut = matches!(short.finish(), Err(Refusal::CutShort { .. }));
            prop_assert!(cut);
        }
    }
}
