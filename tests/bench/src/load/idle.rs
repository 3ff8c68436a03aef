//! Streams that have begun and then lie idle.

use std::time::Duration;

use super::{Dialect, Target};
use crate::{
    bodies::{Answer, Ask, Size},
    wire::Connection,
};

/// Opens that many; each has had the beginning of its answer. They end when the connections are dropped.
///
/// # Errors
/// A sentence when one does not begin.
pub fn idle(target: &Target, count: usize) -> Result<Vec<Connection>, String> {
    (0..count)
        .map(|conversation| {
            let ask = Ask { size: Size::Small, streamed: true, answer: Answer::silent(), conversation };
            let mut connection = Connection::open(target.address)?;
            connection.send(&target.request(Dialect::Chat, ask))?;
            match connection.begun(Duration::from_secs(10))? {
                true => Ok(connection),
                false => Err(format!("{} did not begin stream {conversation}", target.name)),
            }
        })
        .collect()
}
