//! Headers of hostile and damaged files: every one is an answer, never a crash, never a large allocation.

#![allow(clippy::unwrap_used, reason = "helpers of tests: what they need and do not get fails the test")]

use std::sync::LazyLock;

use proptest::prelude::*;
use warden_fixtures::{TinyModel, broken, gguf};
use warden_models::gguf::{Fault, Header, read_header};

fn read(bytes: &[u8]) -> Result<Header, Fault> {
    read_header(bytes, bytes.len() as u64)
}

/// Made once: the whole file and the length of its header.
static TINY: LazyLock<(Vec<u8>, usize)> = LazyLock::new(|| TinyModel::default().gguf().bytes());

/// Little-endian parts glued together.
fn glued(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn begin(version: u32, tensors: u64, keys: u64) -> Vec<u8> {
    glued(&[b"GGUF", &version.to_le_bytes(), &tensors.to_le_bytes(), &keys.to_le_bytes()])
}

#[test]
fn a_whole_model_is_read() {
    let model = TinyModel { context: 8192, ..TinyModel::default() };
    let header = read(&model.bytes()).unwrap();
    assert_eq!(header.architecture.as_deref(), Some("llama"));
    assert_eq!(header.title.as_deref(), Some("Tiny random"));
    assert_eq!(header.kind.as_deref(), Some("model"));
    assert_eq!(header.trained_context, Some(8192));
    assert!(header.has_chat_template);
    assert_eq!(header.tensors, 21);
    assert_eq!(header.needs.next_multiple_of(32), model.bytes().len() as u64);
}

#[test]
fn an_interrupted_copy_is_an_error_at_every_length() {
    let (bytes, header) = &*TINY;
    let needs = usize::try_from(read(bytes).unwrap().needs).unwrap();
    let lengths = (0..2000).chain((2000..*header).step_by(37)).chain((*header..needs).step_by(9973)).chain([needs - 1]);
    for length in lengths {
        let fault = read(&bytes[..length]).unwrap_err();
        let fine = match length {
            0..4 => fault == Fault::NotGguf,
            _ => matches!(fault, Fault::CutInHeader { holds } | Fault::CutInData { holds, .. } if holds == length as u64),
        };
        assert!(fine, "{length}: {fault:?}");
    }
    assert!(read(&bytes[..needs]).is_ok());
}

#[test]
fn a_cut_file_is_told_with_both_sizes() {
    let cut = broken::cut_in_data(&TinyModel::default());
    let text = read(&cut).unwrap_err().to_string();
    assert!(text.contains(&format!("holds {} of ", cut.len())), "{text}");
    assert!(read(&broken::cut_in_header(&TinyModel::default())).unwrap_err().to_string().contains("inside its own header"));
    assert_eq!(read(&broken::not_a_gguf()), Err(Fault::NotGguf));
    assert_eq!(read(b""), Err(Fault::NotGguf));
}

#[test]
fn files_of_other_versions_and_machines_are_named_as_such() {
    assert_eq!(read(&begin(1, 0, 0)), Err(Fault::OldVersion));
    assert_eq!(read(&begin(3u32.swap_bytes(), 0, 0)), Err(Fault::OtherByteOrder));
    assert_eq!(read(&begin(9, 0, 0)), Err(Fault::NewVersion(9)));
    assert!(read(&begin(2, 0, 0)).is_ok());
}

#[test]
fn counts_and_lengths_that_promise_terabytes_cost_nothing() {
    let key = |kind: u32, value: &[u8]| glued(&[&begin(3, 0, 1), &1u64.to_le_bytes(), b"k", &kind.to_le_bytes(), value]);
    let huge = u64::MAX.to_le_bytes();
    let large = (1u64 << 60).to_le_bytes();
    let hostile = [
        begin(3, u64::MAX, 0),
        begin(3, 0, u64::MAX),
        begin(3, 900_000, 900_000),
        glued(&[&begin(3, 0, 1), &huge]),
        glued(&[&begin(3, 0, 1), &large]),
        key(8, &huge),
        key(9, &glued(&[&4u32.to_le_bytes(), &huge])),
        key(9, &glued(&[&8u32.to_le_bytes(), &large])),
        key(9, &glued(&[&9u32.to_le_bytes(), &large])),
        key(77, &[0; 64]),
    ];
    for bytes in hostile {
        assert!(read(&bytes).is_err());
        // The same with a file that claims to be large enough for all of it.
        assert!(read_header(bytes.as_slice(), u64::MAX).is_err());
    }
}

#[test]
fn lists_nested_without_end_do_not_exhaust_the_stack() {
    let mut bytes = glued(&[&begin(3, 0, 1), &1u64.to_le_bytes(), b"k", &9u32.to_le_bytes()]);
    for _ in 0..100_000 {
        bytes.extend(9u32.to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
    }
    assert_eq!(read(&bytes), Err(Fault::Damaged("lists in it are nested too deeply")));
}

#[test]
fn a_tensor_that_lies_beyond_the_file_is_found() {
    let mut file = TinyModel::default().gguf();
    file.tensors[0].shape = vec![128, 1 << 40];
    let (bytes, _) = file.bytes();
    assert!(matches!(read(&bytes), Err(Fault::CutInData { .. })));
    file.tensors[0].shape = vec![1 << 40, 1 << 40];
    assert!(matches!(read(&file.bytes().0), Err(Fault::Damaged(_))));
    file.tensors[0].shape = vec![1; 5];
    assert!(matches!(read(&file.bytes().0), Err(Fault::Damaged(_))));
}

#[test]
fn an_absurd_alignment_is_refused() {
    for alignment in [0u32, 3, u32::MAX] {
        let mut file = gguf::Gguf::default();
        file.key("general.alignment", gguf::Value::U32(alignment));
        assert!(read(&file.bytes().0).is_err(), "{alignment}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_after_the_letters_are_an_answer(rest in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&glued(&[b"GGUF\x03\x00\x00\x00", &rest]));
    }

    #[test]
    fn any_changed_byte_of_a_header_is_an_answer(at in 0usize..12_000, byte in any::<u8>()) {
        let (bytes, header) = &*TINY;
        let mut changed = bytes.clone();
        changed[at % header] = byte;
        let _ = read(&changed);
    }
}
