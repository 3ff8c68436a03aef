//! The header as a whole: keys, tensor table, and where the data must end.

use std::io::Read;

use super::{
    Fault,
    source::Source,
    types::tensor_bytes,
    value::{Value, Want, read_value},
};

pub(super) const KEY_CAP: usize = 4 * 1024;
const TENSOR_NAME_CAP: usize = 1024;
const COUNT_CAP: u64 = 1_000_000;
const DIMENSIONS_CAP: u32 = 4;

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

/// Reads a header from the beginning of a file that is `size` bytes long, and checks that the file is long enough for its tensors.
///
/// # Errors
/// A `Fault` that says what is wrong with the file.
pub fn read_header(file: impl Read, size: u64) -> Result<Header, Fault> {
    let mut source = Source::new(file, size);
    let (tensors, keys) = read_begin(&mut source)?;
    let mut header = Header { tensors, ..Header::default() };
    let mut alignment = 32;
    let mut contexts = Vec::new();
    for _ in 0..keys {
        let key = source.text(KEY_CAP, "a key in it is too long")?;
        let key = String::from_utf8_lossy(&key);
        let value = read_value(&mut source, if is_wanted(&key) { Want::Plain } else { Want::Nothing })?;
        match (key.as_ref(), value) {
            ("general.architecture", Value::Text(text)) => header.architecture = Some(text),
            ("general.name", Value::Text(text)) => header.title = Some(text),
            ("general.type", Value::Text(text)) => header.kind = Some(text),
            ("general.alignment", Value::Number(number)) => alignment = number,
            ("split.no", Value::Number(number)) => header.split_number = Some(number),
            ("split.count", Value::Number(number)) => header.split_count = Some(number),
            ("tokenizer.chat_template", Value::Text(text)) => header.has_chat_template = !text.is_empty(),
            // A template is never kept; there may be a list of named ones.
            ("tokenizer.chat_template", Value::List(_) | Value::LongText) => header.has_chat_template = true,
            (key, Value::Number(number)) if contexts.len() < 16 => {
                if let Some(architecture) = key.strip_suffix(".context_length").filter(|architecture| architecture.len() <= 256) {
                    contexts.push((architecture.to_owned(), number));
                }
            }
            _ => {}
        }
    }
    header.trained_context =
        contexts.into_iter().find(|(architecture, _)| header.architecture.as_ref() == Some(architecture)).map(|(_, number)| number);
    data_start(0, alignment)?;
    let data_length = read_tensor_table(&mut source, tensors, drop)?;
    let data_start = data_start(source.position(), alignment)?;
    header.needs = if tensors == 0 { source.position() } else { data_start.saturating_add(data_length) };
    if header.needs > size {
        return Err(Fault::CutInData { holds: size, needs: header.needs });
    }
    Ok(header)
}

/// Keys of which the value is kept.
fn is_wanted(key: &str) -> bool {
    matches!(key, "general.architecture" | "general.name" | "general.type")
}

/// Magic, version and the two counts: tensors, keys.
pub(super) fn read_begin<R: Read>(source: &mut Source<R>) -> Result<(u64, u64), Fault> {
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
    Ok((tensors, keys))
}

/// A tensor as the table has it.
pub(super) struct Tensor {
    pub(super) name: Vec<u8>,
    pub(super) shape: Vec<u64>,
    pub(super) format: u32,
    /// Its bytes; `None` for a format that is not in the table of formats.
    pub(super) bytes: Option<u64>,
}

/// Walks the tensor table and returns how many bytes of data it asks for.
pub(super) fn read_tensor_table<R: Read>(source: &mut Source<R>, tensors: u64, mut seen: impl FnMut(Tensor)) -> Result<u64, Fault> {
    let mut longest = 0u64;
    for _ in 0..tensors {
        let name = source.text(TENSOR_NAME_CAP, "a tensor's name is too long")?;
        let dimensions = source.u32()?;
        if dimensions > DIMENSIONS_CAP {
            return Err(Fault::Damaged("a tensor has too many dimensions"));
        }
        let shape = (0..dimensions).map(|_| source.u64()).collect::<Result<Vec<_>, _>>()?;
        let format = source.u32()?;
        let offset = source.u64()?;
        let bytes = tensor_bytes(format, &shape)?;
        let end = offset.checked_add(bytes.unwrap_or(0)).ok_or(Fault::Damaged("a tensor lies beyond any disk"))?;
        longest = longest.max(end);
        seen(Tensor { name, shape, format, bytes });
    }
    Ok(longest)
}

/// Where the data begins.
pub(super) fn data_start(position: u64, alignment: u64) -> Result<u64, Fault> {
    if !alignment.is_power_of_two() || alignment > 1 << 20 {
        return Err(Fault::Damaged("its alignment is not a small power of two"));
    }
    Ok(position.next_multiple_of(alignment))
}
