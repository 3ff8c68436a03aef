//! Headers of safetensors files and the index over several of them, read as streams: of a header only where its last weight ends is kept, of
//! an index only the names of files.

use std::{collections::BTreeSet, fmt, io::Read};

use serde::{
    Deserialize, Deserializer as _,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};

/// Longest header that is read; the hub's own tools refuse one above 25 MB.
pub(crate) const LONGEST_HEADER: u64 = 32 << 20;
/// Longest index that is read. The largest models name about a hundred thousand weights in one.
pub(crate) const LONGEST_INDEX: u64 = 32 << 20;
/// Weights that a header or an index may name.
const MOST_WEIGHTS: usize = 400_000;
/// Files that an index may name.
const MOST_FILES: usize = 1000;
/// Longest name of a file in an index.
const LONGEST_NAME: usize = 255;

/// Where the last weight of a header ends, counted from the end of the header.
///
/// # Errors
/// When it is no header, or names more weights than any real one.
pub(crate) fn end_of_weights(header: impl Read) -> Result<u64, serde_json::Error> {
    let mut from = serde_json::Deserializer::from_reader(std::io::BufReader::new(header));
    let end = from.deserialize_map(Header)?;
    from.end()?;
    Ok(end)
}

/// The files that an index names, each once.
///
/// # Errors
/// When it is no index, or names more than any real one.
pub(crate) fn files_of_index(index: impl Read) -> Result<BTreeSet<String>, serde_json::Error> {
    let mut from = serde_json::Deserializer::from_reader(std::io::BufReader::new(index));
    let index = Index::deserialize(&mut from)?;
    from.end()?;
    Ok(index.weight_map.0)
}

/// One weight; the rest of what is said of it is passed over.
#[derive(Deserialize)]
struct Weight {
    data_offsets: (u64, u64),
}

struct Header;

impl<'de> Visitor<'de> for Header {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the header of weights")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<u64, A::Error> {
        let (mut end, mut count) = (0, 0usize);
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            count += 1;
            if count > MOST_WEIGHTS {
                return Err(A::Error::custom("it names more weights than any real one"));
            }
            let Weight { data_offsets: (first, last) } = map.next_value()?;
            if first > last {
                return Err(A::Error::custom("a weight ends before it begins"));
            }
            end = last.max(end);
        }
        Ok(end)
    }
}

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    weight_map: Files,
}

#[derive(Default)]
struct Files(BTreeSet<String>);

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Files;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("weights with the files they lie in")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Files, A::Error> {
                let (mut files, mut count) = (BTreeSet::new(), 0usize);
                while map.next_key::<IgnoredAny>()?.is_some() {
                    let file = map.next_value::<String>()?;
                    count += 1;
                    let room = count <= MOST_WEIGHTS && file.len() <= LONGEST_NAME && (files.len() < MOST_FILES || files.contains(&file));
                    if !room {
                        return Err(A::Error::custom("it names more than any real one"));
                    }
                    files.insert(file);
                }
                Ok(Files(files))
            }
        }
        from.deserialize_map(Names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_weight_counts_wherever_it_stands() {
        let header = br#"{"b":{"dtype":"F16","shape":[2],"data_offsets":[4,9]},"__metadata__":{"a":{"b":[1]}},"a":{"data_offsets":[0,4],"x":[[]]}}"#;
        assert_eq!(end_of_weights(&header[..]).unwrap(), 9);
        assert_eq!(end_of_weights(&b"{}"[..]).unwrap(), 0);
        for bad in [
            &br#"{"a":{"data_offsets":[9,4]}}"#[..],
            br#"{"a":{"data_offsets":[-1,4]}}"#,
            br#"{"a":{"data_offsets":[0]}}"#,
            br#"{"a":{}}"#,
            br#"{"a":7}"#,
            b"[]",
            b"{",
            b"",
        ] {
            assert!(end_of_weights(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn an_index_is_its_files() {
        let index = br#"{"metadata":{"total_size":7},"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"1.safetensors"}}"#;
        assert_eq!(files_of_index(&index[..]).unwrap().into_iter().collect::<Vec<_>>(), ["1.safetensors", "2.safetensors"]);
        assert!(files_of_index(&b"{}"[..]).unwrap().is_empty());
        let many: Vec<String> = (0..=MOST_FILES).map(|n| format!("\"w{n}\":\"{n}\"")).collect();
        assert!(files_of_index(format!("{{\"weight_map\":{{{}}}}}", many.join(",")).as_bytes()).is_err());
    }
}
