//! A scripted engine for development and tests: the agent starts it as it starts llama.cpp's `llama-server`, and it answers what a script says.
//!
//! In: `script.json` in the folder of its own program, read anew for each request ([`script`]). Out: HTTP on the socket of its command
//! line, log lines from which a load's phases are read, figures that move while requests run; beside the program `arrived.jsonl` gets a line
//! when a request came and `asked.jsonl` one when it is over. Tests lay out such a folder with [`Folder`]. Never part of an image.

mod folder;
pub mod script;

pub use folder::{ARRIVED, ASKED, Folder, PROGRAM, SCRIPT};
