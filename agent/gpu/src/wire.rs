//! What goes over the socket: one JSON document per line, from the reader to its listeners. Nothing goes the other way.

use serde::{Deserialize, Serialize};
use warden_domain::gpu::{GpuNotice, GpuReading, GpuSnapshot};

/// The longest line that is read: 64 cards with many holders fit well.
pub const LONGEST: usize = 512 * 1024;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// The cards and how far to trust them.
    pub snapshot: GpuSnapshot,
    /// How long ago the cards were read, in seconds; `None` when they never were.
    pub age_s: Option<f64>,
    /// What no figure shows.
    pub notices: Vec<GpuNotice>,
}

impl Frame {
    /// A frame without cards.
    #[must_use]
    pub const fn bare(reading: GpuReading) -> Self {
        Self { snapshot: GpuSnapshot { reading, driver: None, simulated: false, cards: Vec::new() }, age_s: None, notices: Vec::new() }
    }

    /// The line, with its end.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn line(&self) -> Result<Vec<u8>, String> {
        let mut line = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        line.push(b'\n');
        Ok(line)
    }

    /// Understands a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reading_survives_the_socket() {
        let readings = [
            GpuReading::Starting,
            GpuReading::Live,
            GpuReading::Stale { since_s: 2.5, cause: "why".to_owned() },
            GpuReading::NoLibrary { detail: "what".to_owned() },
            GpuReading::Failed { cause: "why".to_owned() },
        ];
        for reading in readings {
            let frame = Frame::bare(reading);
            let line = frame.line().unwrap();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(Frame::parse(&line).unwrap(), frame);
        }
    }
}
