//! What somebody types at the local screen.

use std::time::Duration;

use warden_vm::{Guest, quiet};

/// Has the box update from the stick that is plugged in.
///
/// # Errors
/// A sentence when the screen does not ask for it, or with its refusal.
pub fn update_from_stick(guest: &mut Guest) -> Result<(), String> {
    let mut ask = |typed: &str, shown: &str| -> Result<String, String> {
        let mark = guest.serial().mark();
        guest.type_serial(typed).map_err(|e| e.to_string())?;
        guest.wait_after(mark, shown, quiet(10)).map_err(|e| e.to_string())
    };
    ask("u", "(?i)stick")?;
    std::thread::sleep(Duration::from_millis(500));
    let said = ask("update\r", "(is being read|Not done[^\n]*)")?;
    if said.starts_with("Not done") { Err(format!("the screen refused: {said}")) } else { Ok(()) }
}
