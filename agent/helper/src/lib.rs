//! The root half of what the agent needs done. `verb` says which calls are acceptable and what they come to, `places` does it in folders
//! that are given to it, `bus` offers it as a typed service. Strings from a caller never reach a command line or a path unchecked.

pub mod bus;
pub mod places;
pub mod verb;
