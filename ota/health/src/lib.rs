//! The update gate. After each start it looks at the system with its own eyes and tells RAUC whether the slot is good.
//!
//! `checks` and `watch` decide, over values alone; `readers` bring the facts (system bus, `/proc`, the console over its real address, one
//! token per model); `hands` marks and restarts; `run` puts them together under one deadline. Nothing here asks the internet, and nothing
//! the agent says about itself is believed: it must answer as it answers its users.
//!
//! | Start | What is done |
//! |---|---|
//! | of a slot that is not counted | wait until the agent answers, then mark good, so that the initrd's count ends |
//! | of a counted slot | all checks, unbroken for the dwell time: verdict, mark good; at the deadline: verdict, mark bad, restart |

pub mod came;
pub mod checks;
pub mod facts;
pub mod hands;
pub mod readers;
pub mod run;
pub mod times;
pub mod watch;
