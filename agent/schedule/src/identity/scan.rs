//! One pass over a body: what it says about its conversation, and where its members stand.

use std::{borrow::Cow, ops::Range};

use super::{
    hash, message,
    reader::{Kind, Reader},
    value,
};

/// Most members of a body itself. No API has a hundred; a body full of empty ones would be ten times as large once it is read.
pub const MOST_MEMBERS: usize = 4096;

/// What a body says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The system prompt; 0: none.
    pub(crate) system: u64,
    /// See `Asked`.
    pub(crate) chain: Vec<u64>,
    pub(crate) messages: usize,
    pub(crate) opening: bool,
    pub(crate) tools: bool,
    /// `prompt_cache_key`.
    pub(crate) cache_key: Option<String>,
    /// `metadata.user_id`.
    pub(crate) user_id: Option<String>,
}

impl Default for Scan {
    fn default() -> Self {
        Self { system: 0, chain: Vec::new(), messages: 0, opening: true, tools: false, cache_key: None, user_id: None }
    }
}

/// A member of the body itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its name, without needless escapes.
    pub name: Cow<'a, [u8]>,
    /// Where its value stands in the body.
    pub value: Range<usize>,
}

/// Reads a body of any of the three dialects; `None` when it is no JSON object, nested beyond reason, or no conversation.
#[must_use]
pub fn scan(body: &[u8]) -> Option<Scan> {
    scan_members(body)?.0
}

/// The same (`None` inside: no conversation), and all members of the body in their order, so that nobody has to go over it once more for a
/// few of them. `None`: it is no JSON object, nested beyond reason, or has more than `MOST_MEMBERS`.
#[must_use]
pub fn scan_members(body: &[u8]) -> Option<(Option<Scan>, Vec<Member<'_>>)> {
    std::str::from_utf8(body).ok()?;
    let (mut reader, mut scan, mut members) = (Reader::new(body), Some(Scan::default()), Vec::with_capacity(16));
    reader.object(|reader, name| {
        let name = name.canonical();
        reader.kind()?;
        let from = reader.at();
        let talk = scan.take();
        scan = reader.read_or_skip(|reader| member(talk?, &name, reader))?;
        if members.len() == MOST_MEMBERS {
            return None;
        }
        members.push(Member { name, value: from..reader.at() });
        Some(())
    })?;
    reader.is_at_end().then_some((scan, members))
}

/// Reads one member into a scan; `None`: its value is not what a conversation has there.
fn member(mut scan: Scan, name: &[u8], reader: &mut Reader<'_>) -> Option<Scan> {
    match name {
        b"messages" | b"input" => message::read(&mut scan, reader)?,
        b"system" | b"instructions" => {
            let system = value::content(reader)?;
            scan.system = hash::of(&(scan.system, system));
        }
        b"tools" if reader.kind()? == Kind::Array => {
            reader.array(|reader| {
                scan.tools = true;
                reader.skip()
            })?;
        }
        b"prompt_cache_key" => scan.cache_key = text_or_none(reader)?,
        b"metadata" => scan.user_id = user_id(reader)?,
        _ => reader.skip()?,
    }
    Some(scan)
}

/// A string; a value of another kind is none.
fn text_or_none(reader: &mut Reader<'_>) -> Option<Option<String>> {
    if reader.kind()? == Kind::Text { reader.text().map(|text| text.to_text()) } else { reader.skip().map(|()| None) }
}

/// `user_id` of an object.
fn user_id(reader: &mut Reader<'_>) -> Option<Option<String>> {
    if reader.kind()? != Kind::Object {
        return reader.skip().map(|()| None);
    }
    let mut found = None;
    reader.object(|reader, name| {
        if &*name.canonical() == b"user_id" {
            found = text_or_none(reader)?;
            Some(())
        } else {
            reader.skip()
        }
    })?;
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_a_body_are_found_where_they_stand() {
        let body = br#" { "model" : "a", "messages":[{"role":"user","content":"x"}] ,"strea\u006d":true,"n":1.5 } "#;
        let (scan, members) = scan_members(body).unwrap();
        let seen: Vec<(&[u8], &[u8])> = members.iter().map(|m| (&*m.name, &body[m.value.clone()])).collect();
        assert_eq!(scan.unwrap().messages, 1);
        assert_eq!(seen[0], (&b"model"[..], &br#""a""#[..]));
        assert_eq!(seen[1].1, br#"[{"role":"user","content":"x"}]"#);
        assert_eq!(seen[2..], [(&b"stream"[..], &b"true"[..]), (&b"n"[..], &b"1.5"[..])]);
        for bad in [&br#"{"a":1} x"#[..], br#"{"messages":[}"#, br#"{"a":"\xff"}"#, b"[1]", b"{\"a\":\"\xff\"}"] {
            assert!(scan_members(bad).is_none(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn a_body_without_a_conversation_still_tells_its_members() {
        for odd in [r#"{"messages":7,"model":"a"}"#, r#"{"messages":["x",[{"a":[1]}]],"model":"a"}"#, r#"{"system":[[0]],"messages":[],"model":"a"}"#]
        {
            let (scan, members) = scan_members(odd.as_bytes()).unwrap();
            assert_eq!(scan, None, "{odd}");
            let last = members.last().unwrap();
            assert_eq!((&*last.name, &odd[last.value.clone()]), (&b"model"[..], r#""a""#));
        }
    }

    #[test]
    fn a_list_of_tools_counts_when_there_is_one_in_it() {
        let tools = |text: &str| scan(format!(r#"{{"tools":{text}}}"#).as_bytes()).unwrap().tools;
        assert!(tools("[{}]") && tools("[ 1 ]"));
        assert!(!tools("[]") && !tools("[ \n]") && !tools("{\"a\":[1]}") && !tools("null"));
    }
}
