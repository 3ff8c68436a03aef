//! Messages one after the other: `messages` of chat and Messages, `input` of Responses.

use super::{
    hash,
    reader::{Kind, Reader},
    scan::Scan,
    value::{self, Members},
};

/// Links kept of a chain; older ones are folded into the first that is kept.
const LINKS: usize = 1024;

/// Reads messages into a scan.
pub(crate) fn read(scan: &mut Scan, reader: &mut Reader<'_>) -> Option<()> {
    match reader.kind()? {
        Kind::Null => reader.scalar().map(drop),
        Kind::Object => reader.skip(),
        Kind::Text => {
            let said = value::text_alone(reader.text()?);
            link(scan, said);
            Some(())
        }
        Kind::Array => reader.array(|reader| match reader.kind()? {
            Kind::Object => {
                take(scan, &Members::read(reader)?);
                Some(())
            }
            // Anything but an object is no message.
            Kind::Text => reader.text().map(drop),
            _ => None,
        }),
        Kind::Number | Kind::Bool => None,
    }
}

fn link(scan: &mut Scan, message: u64) {
    let before = scan.chain.last().copied().unwrap_or(0);
    if scan.chain.len() >= LINKS * 2 {
        scan.chain.drain(..LINKS);
    }
    scan.chain.push(hash::of(&(before, message)));
    scan.messages += 1;
}

fn take(scan: &mut Scan, message: &Members<'_>) {
    let Some(hash) = message.hash() else { return };
    // What stands in front of the first turn is the system prompt, whatever the dialect calls it.
    if scan.messages == 0 && message.has_role(&["system", "developer"]) {
        scan.system = hash::of(&(scan.system, hash));
        return;
    }
    scan.opening &= message.has_role(&["user", "system", "developer"]);
    link(scan, hash);
}
