//! Stands in for the agent of a broken release: ends by a signal as soon as it starts.

fn main() {
    std::process::abort();
}
