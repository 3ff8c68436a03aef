//! Bodies made to be costly: what reads them must neither run out of stack nor hold them many times over.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::time::{Duration, Instant};

use warden_schedule::identity::scan;

/// As text inside a JSON string, so that a quote grows by five bytes with each level and does not double.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\u005c").replace('"', "\\u0022")
}

/// A request whose call has arguments with arguments with arguments: `levels` of them, each `lists` deep, around a text.
fn nested(levels: usize, lists: usize, text: &str) -> String {
    let (mut before, mut behind) = (String::new(), String::new());
    for _ in 0..levels {
        before = format!(r#"{}{{"arguments":"{}"#, "[".repeat(lists), escaped(&before));
        behind = format!(r#"{}"}}{}"#, escaped(&behind), "]".repeat(lists));
    }
    let (before, behind) = (escaped(&before), escaped(&behind));
    let call = format!(r#"{{"type":"function","function":{{"name":"a","arguments":"{before}{text}{behind}"}}}}"#);
    format!(r#"{{"messages":[{{"role":"user","content":"go"}},{{"role":"assistant","tool_calls":[{call}]}}]}}"#)
}

/// Most memory this process ever had, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches("kB").trim().parse().unwrap()
}

#[test]
fn arguments_inside_arguments_do_not_exhaust_the_stack() {
    let body = nested(60, 120, "");
    assert!(body.len() < 60_000, "{}", body.len());
    let small = std::thread::Builder::new().stack_size(2 << 20);
    let read = small.spawn(move || scan(body.as_bytes()).is_some()).unwrap().join().unwrap();
    assert!(read, "it is a request like any other");
}

#[test]
fn arguments_inside_arguments_are_not_held_once_per_level() {
    let body = nested(20, 1, &"x".repeat(30 << 20));
    let (before, began) = (peak(), Instant::now());
    assert!(scan(body.as_bytes()).is_some());
    let held = peak() - before;
    assert!(held < 100 << 10, "{held} KiB for a body of {} KiB", body.len() >> 10);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
