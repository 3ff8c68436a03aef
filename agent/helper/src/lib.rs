//! The root half of what the agent needs done. `verb` says which calls are acceptable and what they come to, `places` does it in folders
//! that are given to it, `bus` offers it as a typed service; `reset` is a room of its own. Strings from a caller never reach a command line or a path unchecked.

pub mod bus;
pub mod places;
pub mod reset;
pub mod rollback;
pub mod verb;

/// Random bytes of the operating system.
#[must_use]
pub fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    if let Err(cause) = getrandom::fill(&mut bytes) {
        eprintln!("the operating system's random source failed: {cause}; stopping, because ids would be predictable");
        std::process::abort();
    }
    bytes
}
