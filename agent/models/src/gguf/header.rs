//! The header as a whole: keys, tensor table, and where the data must end.

use std::io::Read;

use super::{Fault, source::Source, types::tensor_bytes};

const KEY_CAP: usize = 4 * 1024;
const TENSOR_NAME_CAP: usize = 1024;
const TEXT_CAP: usize = 64 * 1024;
const COUNT_CAP: u64 = 1_000_000;
const DIMENSIONS_CAP: u32 = 4;
const NESTING_CAP: u8 = 4;

/// What a header says. Unknown stays `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// `general.architecture`.
    pub architecture: Option<String>,
    /// `general.name`.
    pub title: Option<String>,
    /// `general.type`: `model`, `adapter`, `mmproj`…
    pub kind: Option<String>,
    /// `<architecture>.context_length`, in tokens.
    pub trained_context: Option<u64>,
    /// Whether a chat template is there.
    pub has_chat_template: bool,
    /// Of a model split over several files: number of this file, from 0.
    pub split_number: Option<u64>,
    /// Of a model split over several files: how many there are.
    pub split_count: Option<u64>,
    /// Tensors in this file.
    pub tensors: u64,
    /// The size the file must at least have, in bytes.
    pub needs: u64,
}

enum Value {
    Number(u64),
    Text(String),
    Other,
}

/// Reads a header from the beginning of a file that is `size` bytes long, and checks that the file is long enough for its tensors.
///
/// # Errors
/// A `Fault` that says what is wrong with the file.
pub fn read_header(file: impl Read, size: u64) -> Result<Header, Fault> {
    let mut source = Source::new(file, size);
    let begin = source.bytes::<4>().map_err(|_| Fault::NotGguf)?;
    if begin != *b"GGUF" {
        return Err(Fault::NotGguf);
    }
    match source.u32()? {
        2 | 3 => {}
        1 => return Err(Fault::OldVersion),
        version if matches!(version.swap_bytes(), 1..=3) => return Err(Fault::OtherByteOrder),
        version => return Err(Fault::NewVersion(version)),
    }
    let tensors = source.u64()?;
    let keys = source.u64()?;
    if tensors > COUNT_CAP || keys > COUNT_CAP {
        return Err(Fault::Damaged("it counts more entries than any real one"));
    }
    let mut header = Header { tensors, ..Header::default() };
    let mut alignment = 32;
    let mut contexts = Vec::new();
    for _ in 0..keys {
        let key = source.text(KEY_CAP, "a key in it is too long")?;
        let value = read_value(&mut source)?;
        match (String::from_utf8_lossy(&key).as_ref(), value) {
            ("general.architecture", Value::Text(text)) => header.architecture = Some(text),
            ("general.name", Value::Text(text)) => header.title = Some(text),
            ("general.type", Value::Text(text)) => header.kind = Some(text),
            ("general.alignment", Value::Number(number)) => alignment = number,
            ("split.no", Value::Number(number)) => header.split_number = Some(number),
            ("split.count", Value::Number(number)) => header.split_count = Some(number),
            ("tokenizer.chat_template", Value::Text(text)) => header.has_chat_template = !text.is_empty(),
            // A template longer than what is kept, or a list of named ones.
            ("tokenizer.chat_template", Value::Other) => header.has_chat_template = true,
            (key, Value::Number(number)) if contexts.len() < 16 => {
                if let Some(architecture) = key.strip_suffix(".context_length") {
                    contexts.push((architecture.to_owned(), number));
                }
            }
            _ => {}
        }
    }
    header.trained_context =
        contexts.into_iter().find(|(architecture, _)| header.architecture.as_ref() == Some(architecture)).map(|(_, number)| number);
    if !alignment.is_power_of_two() || alignment > 1 << 20 {
        return Err(Fault::Damaged("its alignment is not a small power of two"));
    }
    let data_length = read_tensor_table(&mut source, tensors)?;
    let data_start = source.position().next_multiple_of(alignment);
    header.needs = if tensors == 0 { source.position() } else { data_start.saturating_add(data_length) };
    if header.needs > size {
        return Err(Fault::CutInData { holds: size, needs: header.needs });
    }
    Ok(header)
}

/// Walks the tensor table and returns how many bytes of data it asks for.
fn read_tensor_table<R: Read>(source: &mut Source<R>, tensors: u64) -> Result<u64, Fault> {
    let mut longest = 0u64;
    for _ in 0..tensors {
        source.text(TENSOR_NAME_CAP, "a tensor's name is too long")?;
        let dimensions = source.u32()?;
        if dimensions > DIMENSIONS_CAP {
            return Err(Fault::Damaged("a tensor has too many dimensions"));
        }
        let shape = (0..dimensions).map(|_| source.u64()).collect::<Result<Vec<_>, _>>()?;
        let format = source.u32()?;
        let offset = source.u64()?;
        let end = offset.checked_add(tensor_bytes(format, &shape)?.unwrap_or(0)).ok_or(Fault::Damaged("a tensor lies beyond any disk"))?;
        longest = longest.max(end);
    }
    Ok(longest)
}

fn read_value<R: Read>(source: &mut Source<R>) -> Result<Value, Fault> {
    let kind = source.u32()?;
    read_value_of(source, kind, 0)
}

fn read_value_of<R: Read>(source: &mut Source<R>, kind: u32, nesting: u8) -> Result<Value, Fault> {
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
        8 => read_text_value(source)?,
        9 => {
            skip_array(source, nesting)?;
            Value::Other
        }
        other => {
            let width = width_of(other).ok_or(Fault::Damaged("a key has a value of unknown kind"))?;
            source.skip(width)?;
            Value::Other
        }
    })
}

/// Longer texts than anyone needs here (chat templates of some models) are passed over, not refused.
fn read_text_value<R: Read>(source: &mut Source<R>) -> Result<Value, Fault> {
    let length = source.u64()?;
    source.check_room(length)?;
    match usize::try_from(length) {
        Ok(length) if length <= TEXT_CAP => {
            let bytes = source.exactly(length)?;
            Ok(Value::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        _ => {
            source.skip(length)?;
            Ok(Value::Other)
        }
    }
}

fn skip_array<R: Read>(source: &mut Source<R>, nesting: u8) -> Result<(), Fault> {
    if nesting >= NESTING_CAP {
        return Err(Fault::Damaged("lists in it are nested too deeply"));
    }
    let kind = source.u32()?;
    let count = source.u64()?;
    match (width_of(kind), kind) {
        (Some(width), _) => source.skip(count.checked_mul(width).ok_or(Fault::Damaged("a length in it is absurd"))?),
        (None, 8) => {
            // Each text takes at least its length field, so a count beyond the file is refused before the walk.
            source.check_room(count.checked_mul(8).ok_or(Fault::Damaged("a length in it is absurd"))?)?;
            (0..count).try_for_each(|_| source.skip_text())
        }
        (None, 9) => {
            source.check_room(count.checked_mul(12).ok_or(Fault::Damaged("a length in it is absurd"))?)?;
            (0..count).try_for_each(|_| skip_array(source, nesting + 1))
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
