//! Stands in for the launcher of engines of a broken release: stays, and never becomes an engine.

fn main() {
    loop {
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }
}
