//! Finds the few fields of a form (`multipart/form-data`) the gateway acts on. The form itself goes to the engine byte for byte.
//!
//! In: the content type and the bytes. Out: model name and stream flag. Files in the form are skipped, never looked into or copied; heads
//! and fields are bounded. Pure.

use axum::http::HeaderValue;
use memchr::memmem;
use warden_domain::{Problem, ProblemKind};

/// Longest head of one part.
const HEAD: usize = 8 * 1024;
/// Longest value of a field that matters.
const VALUE: usize = 1024;
/// Most parts.
const PARTS: usize = 1000;

/// What a form asks for, as far as the gateway cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// The model named.
    pub model: String,
    /// Whether the answer is to be streamed.
    pub stream: bool,
}

/// Reads a form.
pub(crate) fn read(kind: Option<&HeaderValue>, body: &[u8]) -> Result<Form, Problem> {
    let boundary = kind
        .and_then(|value| value.to_str().ok())
        .and_then(boundary)
        .ok_or_else(|| bad("The request is no form.").hint("Send it as multipart/form-data with a boundary, as OpenAI's API describes it."))?;
    let (mut model, mut stream) = (None, None);
    for part in parts(body, boundary)? {
        let slot = match field(part.head) {
            Some(b"model") => &mut model,
            Some(b"stream") => &mut stream,
            _ => continue,
        };
        let value = std::str::from_utf8(part.value).ok().filter(|value| value.len() <= VALUE).map(str::trim);
        let value = value.ok_or_else(|| bad("A field of the form is no short text.").param("model"))?;
        // Engines take the last of two, others the first: what is decided here must be what they do.
        if slot.replace(value).is_some() {
            return Err(bad("A field of the form is there twice.").param("model"));
        }
    }
    let model = model.filter(|name| !name.is_empty()).ok_or_else(|| {
        bad("The form names no model.").hint("Put the name of a loaded model into the field 'model'; GET /v1/models lists them.").param("model")
    })?;
    Ok(Form { model: model.to_owned(), stream: stream.is_some_and(|flag| flag.eq_ignore_ascii_case("true") || flag == "1") })
}

struct Part<'a> {
    head: &'a [u8],
    value: &'a [u8],
}

fn parts<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<Part<'a>>, Problem> {
    let broken = || bad("The form cannot be read: it does not follow its boundary.");
    let line = format!("\r\n--{boundary}");
    let finder = memmem::Finder::new(&line);
    // The first boundary has no line break before it, unless there is something in front.
    let mut rest = match body.strip_prefix(&line.as_bytes()[2..]) {
        Some(rest) => rest,
        None => &body[finder.find(body).ok_or_else(broken)? + line.len()..],
    };
    let mut parts = Vec::new();
    while !rest.starts_with(b"--") {
        rest = behind_line(rest).ok_or_else(broken)?;
        let end = finder.find(rest).ok_or_else(broken)?;
        let at = memmem::find(&rest[..end.min(HEAD)], b"\r\n\r\n");
        let (head, value) = at.map(|at| (at, at + 4)).or_else(|| rest[..end].starts_with(b"\r\n").then_some((0, 2))).ok_or_else(broken)?;
        parts.push(Part { head: &rest[..head], value: &rest[value..end] });
        if parts.len() > PARTS {
            return Err(bad("The form has too many parts."));
        }
        rest = &rest[end + line.len()..];
    }
    Ok(parts)
}

/// What follows a boundary's line, which may go on with blanks only.
fn behind_line(rest: &[u8]) -> Option<&[u8]> {
    let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    rest[blanks..].strip_prefix(b"\r\n")
}

/// The name of a field; `None` for a file, and for a part without a name.
fn field(head: &[u8]) -> Option<&[u8]> {
    let line = head.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon].trim_ascii().eq_ignore_ascii_case(b"content-disposition").then(|| &line[colon + 1..])
    })?;
    let mut name = None;
    for (at, parameter) in line.split(|byte| *byte == b';').enumerate() {
        let parameter = parameter.trim_ascii();
        if at == 0 && !parameter.eq_ignore_ascii_case(b"form-data") {
            return None;
        }
        let Some(equals) = parameter.iter().position(|byte| *byte == b'=') else { continue };
        let (key, value) = (parameter[..equals].trim_ascii(), parameter[equals + 1..].trim_ascii());
        if key.eq_ignore_ascii_case(b"filename") || key.eq_ignore_ascii_case(b"filename*") {
            return None;
        }
        if key.eq_ignore_ascii_case(b"name") {
            name = Some(value.strip_prefix(b"\"").and_then(|inner| inner.strip_suffix(b"\"")).unwrap_or(value));
        }
    }
    name
}

/// The boundary that a content type names: 1 to 70 characters, as the standard has it.
fn boundary(content_type: &str) -> Option<&str> {
    let mut parameters = content_type.split(';');
    if !parameters.next()?.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let (_, value) = parameters.filter_map(|p| p.split_once('=')).find(|(key, _)| key.trim().eq_ignore_ascii_case("boundary"))?;
    let value = value.trim();
    let value = value.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(value);
    (1..=70).contains(&value.len()).then_some(value)
}

fn bad(message: &str) -> Problem {
    Problem::new(ProblemKind::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(kind: &str, body: &[u8]) -> Result<Form, Problem> {
        super::read(Some(&HeaderValue::from_str(kind).unwrap()), body)
    }

    const KIND: &str = "multipart/form-data; boundary=\"xX42\"";

    fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (disposition, value) in parts {
            body.extend_from_slice(format!("--xX42\r\nContent-Disposition: form-data; {disposition}\r\n\r\n").as_bytes());
            body.extend_from_slice(value);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--xX42--\r\n");
        body
    }

    #[test]
    fn the_model_is_found_beside_a_file_whatever_the_file_holds() {
        let file = b"\r\n--xX4\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwrong\0\xff--xX42";
        for order in [false, true] {
            let mut parts: Vec<(&str, &[u8])> =
                vec![("name=\"file\"; filename=\"model\"", file), ("name=model", b" whisper "), ("name=\"stream\"", b"true")];
            if order {
                parts.reverse();
            }
            assert_eq!(read(KIND, &form(&parts)).unwrap(), Form { model: "whisper".to_owned(), stream: true });
        }
        let plain = form(&[("name=\"model\"", b"m"), ("name=\"file\"; filename=\"a.wav\"", b"")]);
        let before = [b"a preamble\r\n".as_slice(), &plain].concat();
        for body in [plain, before] {
            assert_eq!(read(KIND, &body).unwrap(), Form { model: "m".to_owned(), stream: false });
        }
    }

    #[test]
    fn a_form_that_cannot_be_used_is_refused_with_its_fault() {
        let model: (&str, &[u8]) = ("name=\"model\"", b"m");
        let long = vec![b'm'; 5000];
        for (kind, body, word) in [
            ("application/json", form(&[model]), "no form"),
            ("multipart/form-data", form(&[model]), "no form"),
            (KIND, form(&[]), "names no model"),
            (KIND, form(&[("name=\"file\"; filename=\"x\"", b"m")]), "names no model"),
            (KIND, form(&[model, model]), "twice"),
            (KIND, form(&[("name=\"model\"", &long)]), "short text"),
            (KIND, b"--xX42\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm".to_vec(), "boundary"),
            (KIND, b"nothing".to_vec(), "boundary"),
            (KIND, form(&vec![("name=\"x\"", b"y".as_slice()); 1001]), "too many"),
        ] {
            let problem = read(kind, &body).unwrap_err();
            assert!(problem.message.contains(word), "{kind}: {}", problem.message);
            assert_eq!(problem.kind, ProblemKind::BadRequest);
        }
    }

    proptest! {
        #[test]
        fn rubbish_is_never_a_panic(pieces in prop::collection::vec(prop_oneof![Just(b"\r\n--xX42".to_vec()), Just(b"\r\n\r\n".to_vec()), Just(b"content-disposition:form-data;name=\"".to_vec()), prop::collection::vec(any::<u8>(), 0..20)], 0..20)) {
            let _ = read(KIND, &[b"--xX42\r\n".to_vec(), pieces.concat()].concat());
        }
    }
}
