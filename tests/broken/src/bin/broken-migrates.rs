//! Stands in for the agent of a broken release: brings the database to a schema that no other release can read, then ends by a signal.

use std::process::ExitCode;

/// Where the appliance keeps it.
const DATABASE: &str = "/state/warden/config.db";
/// Far above every schema there is.
const CHANGE: &str = "
    BEGIN IMMEDIATE;
    INSERT OR IGNORE INTO schema (version, readable_from, applied_at) VALUES (900, 900, 0);
    DROP TABLE IF EXISTS sessions;
    ALTER TABLE accounts RENAME TO people;
    COMMIT;
";

fn main() -> ExitCode {
    let changed = rusqlite::Connection::open(DATABASE).and_then(|db| db.execute_batch(CHANGE));
    if let Err(error) = changed {
        // The second start finds it done.
        eprintln!("broken-migrates: {error}");
    }
    std::process::abort();
}
