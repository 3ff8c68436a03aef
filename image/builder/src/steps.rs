//! Prints what the build does and how long each step took, so that a slow step is seen by whoever waits for it.

use std::io::Write;
use std::time::Instant;

use crate::fault::Done;

/// Runs one step, printing its name first and its time after.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Done<T>) -> Done<T> {
    print!("  {name:<44}");
    let _ = std::io::stdout().flush();
    let start = Instant::now();
    let result = work();
    match &result {
        Ok(_) => println!("{:>7.2} s", start.elapsed().as_secs_f64()),
        Err(_) => println!(" failed"),
    }
    result
}

/// A line below a step.
pub(crate) fn note(text: &str) {
    println!("    {text}");
}
