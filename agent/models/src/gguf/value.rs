//! Values of keys: numbers and short texts are kept, short lists of whole numbers too; everything else is passed over.

use std::io::Read;

use super::{Fault, source::Source};

/// Longest text that is kept.
const TEXT_CAP: usize = 256;
const NESTING_CAP: u8 = 4;
/// Longer lists of numbers are counted and passed over. No model has more layers.
const LIST_CAP: u64 = 4096;

/// What of a key's value is wanted. What is not wanted is passed over without being kept, however long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Only whether it is there, and how long a list is.
    Nothing,
    /// A number or a text.
    Plain,
    /// A short list of numbers too.
    List,
}

/// A value as far as it was wanted.
pub(super) enum Value {
    Number(u64),
    Text(String),
    List(List),
    /// A text that was not wanted or is too long, with its length.
    LongText,
    Other,
}

/// A list: how long it is, and its numbers when it is a short list of whole numbers or truths.
pub(super) struct List {
    pub(super) count: u64,
    pub(super) numbers: Option<Vec<u64>>,
}

pub(super) fn read_value<R: Read>(source: &mut Source<R>, want: Want) -> Result<Value, Fault> {
    let kind = source.u32()?;
    read_value_of(source, kind, want, 0)
}

fn read_value_of<R: Read>(source: &mut Source<R>, kind: u32, want: Want, nesting: u8) -> Result<Value, Fault> {
    Ok(match kind {
        0 => Value::Number(source.u8()?.into()),
        2 => Value::Number(u64::from(u16::from_le_bytes(source.bytes()?))),
        4 => Value::Number(source.u32()?.into()),
        10 => Value::Number(source.u64()?),
        // Signed numbers stand where counts belong in some files; a negative count is no count.
        1 => signed(i8::from_le_bytes(source.bytes()?).into()),
        3 => signed(i16::from_le_bytes(source.bytes()?).into()),
        5 => signed(i32::from_le_bytes(source.bytes()?).into()),
        11 => signed(i64::from_le_bytes(source.bytes()?)),
        8 => read_text_value(source, want)?,
        7 => Value::Number(u64::from(source.u8()? != 0)),
        9 => Value::List(read_list(source, want, nesting)?),
        other => {
            let width = width_of(other).ok_or(Fault::Damaged("a key has a value of unknown kind"))?;
            source.skip(width)?;
            Value::Other
        }
    })
}

/// Longer texts than anyone needs here (chat templates of some models) are passed over, not refused.
fn read_text_value<R: Read>(source: &mut Source<R>, want: Want) -> Result<Value, Fault> {
    let length = source.u64()?;
    source.check_room(length)?;
    match usize::try_from(length) {
        Ok(0) => Ok(Value::Text(String::new())),
        Ok(length) if length <= TEXT_CAP && want != Want::Nothing => {
            let bytes = source.exactly(length)?;
            Ok(Value::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        _ => {
            source.skip(length)?;
            Ok(Value::LongText)
        }
    }
}

fn read_list<R: Read>(source: &mut Source<R>, want: Want, nesting: u8) -> Result<List, Fault> {
    if nesting >= NESTING_CAP {
        return Err(Fault::Damaged("lists in it are nested too deeply"));
    }
    let kind = source.u32()?;
    let count = source.u64()?;
    if want == Want::List && is_whole(kind) && count <= LIST_CAP {
        let read = |_| match read_value_of(source, kind, want, nesting + 1)? {
            Value::Number(number) => Ok(Some(number)),
            _ => Ok(None),
        };
        return Ok(List { count, numbers: (0..count).map(read).collect::<Result<Option<Vec<_>>, Fault>>()? });
    }
    skip_items(source, kind, count, nesting)?;
    Ok(List { count, numbers: None })
}

const fn is_whole(kind: u32) -> bool {
    matches!(kind, 0..=5 | 7 | 10 | 11)
}

fn skip_items<R: Read>(source: &mut Source<R>, kind: u32, count: u64, nesting: u8) -> Result<(), Fault> {
    match (width_of(kind), kind) {
        (Some(width), _) => source.skip(count.checked_mul(width).ok_or(Fault::Damaged("a length in it is absurd"))?),
        (None, 8) => {
            // Each text takes at least its length field, so a count beyond the file is refused before the walk.
            source.check_room(count.checked_mul(8).ok_or(Fault::Damaged("a length in it is absurd"))?)?;
            (0..count).try_for_each(|_| source.skip_text())
        }
        (None, 9) => {
            source.check_room(count.checked_mul(12).ok_or(Fault::Damaged("a length in it is absurd"))?)?;
            (0..count).try_for_each(|_| read_list(source, Want::Nothing, nesting + 1).map(drop))
        }
        _ => Err(Fault::Damaged("a list in it is of unknown kind")),
    }
}

/// Bytes of a value of fixed width.
const fn width_of(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

fn signed(number: i64) -> Value {
    u64::try_from(number).map_or(Value::Other, Value::Number)
}
