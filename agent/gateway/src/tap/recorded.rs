//! Streams that real engines sent, cut at each byte: a client of the chat API gets the same bytes, and the same is noted.

use std::{collections::VecDeque, path::Path};

use bytes::Bytes;

use super::{End, SseTap, Usage};

fn streams() -> Vec<(String, Vec<u8>)> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap();
    let mut all = warden_fixtures::captures::engine_streams(&root).unwrap();
    for entry in std::fs::read_dir(root.join("agent/gateway/tests/fixtures/streams")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "sse") {
            all.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    all
}

fn tapped(pieces: &[&[u8]], hide: bool) -> (Vec<u8>, Usage, End) {
    let mut tap = SseTap::new(hide);
    let mut out = VecDeque::new();
    pieces.iter().for_each(|piece| tap.feed(&Bytes::copy_from_slice(piece), &mut out));
    let end = tap.finish(&mut out);
    (out.make_contiguous().concat(), tap.usage(), end)
}

#[test]
fn every_recorded_stream_cut_at_each_byte_passes_the_same() {
    for (name, bytes) in streams() {
        let whole = [false, true].map(|hide| tapped(&[&bytes], hide));
        match whole[0].2 {
            End::Whole => assert_eq!(whole[0].0, bytes, "{name}: a client that asked for usage gets what the engine sent"),
            End::Failed(_) => assert!(bytes.starts_with(&whole[0].0), "{name}: what came before the fault goes on as it came"),
        }
        for at in 0..bytes.len() {
            let hide = at % 2 == 1;
            assert!(tapped(&[&bytes[..at], &bytes[at..]], hide) == whole[usize::from(hide)], "{name} cut at {at}");
        }
    }
}
