//! Lines for whoever watches the start: the kernel's log, so that every console and later the journal has them.

use std::fs::OpenOptions;
use std::io::Write;

/// A line for the log; consoles show it only when they are not quiet.
pub fn note(line: &str) {
    to_kernel(5, line);
}

/// A line for the log that the first console, which may be quiet, shows too.
pub fn milestone(line: &str) {
    println!("{line}");
    note(line);
}

/// A line that every console shows.
pub fn urgent(line: &str) {
    to_kernel(2, line);
}

fn to_kernel(level: u8, line: &str) {
    let told = OpenOptions::new().write(true).open("/dev/kmsg").and_then(|mut log| log.write_all(format!("<{level}>{line}\n").as_bytes()));
    if told.is_err() {
        println!("{line}");
    }
}
