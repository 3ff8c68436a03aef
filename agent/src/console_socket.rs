//! The local socket: what `warden-console` on tty1 and `make demo` read. Its file permissions are its authority.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use axum::{Json, Router, extract::State, routing::get};
use tokio::net::UnixListener;
use warden_domain::Problem;

use crate::{
    local_updates::{self, LocalUpdates},
    status::{LocalStatus, StatusSource},
};

/// Opens `<runtime_dir>/console.sock`, replacing a stale one.
///
/// # Errors
/// The path is too long, taken by something that is no socket, or the folder is not writable.
pub fn open(runtime_dir: &Path) -> Result<UnixListener, Problem> {
    let path = runtime_dir.join("console.sock");
    let subject = format!("the local socket {}", path.display());
    match fs::symlink_metadata(&path) {
        Ok(found) if std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()) => {
            fs::remove_file(&path).map_err(|cause| Problem::from_io(&subject, &cause))?;
        }
        Ok(_) => {
            return Err(Problem::internal(format!("{subject} cannot be made: something that is no socket lies there."))
                .hint("Remove that file, or choose another runtime_dir."));
        }
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(Problem::from_io(&subject, &cause)),
    }
    let listener = UnixListener::bind(&path).map_err(|cause| Problem::from_io(&subject, &cause))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).map_err(|cause| Problem::from_io(&subject, &cause))?;
    Ok(listener)
}

/// Routes of the local socket.
pub fn router(source: StatusSource, updates: LocalUpdates) -> Router {
    Router::new().route("/console/status", get(status)).with_state(source).merge(local_updates::router(updates))
}

async fn status(State(source): State<StatusSource>) -> Json<LocalStatus> {
    Json(source.read().await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_left_by_a_crash_is_replaced_and_a_foreign_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path()).unwrap());
        open(dir.path()).unwrap();
        fs::remove_file(dir.path().join("console.sock")).unwrap();
        fs::write(dir.path().join("console.sock"), "mine").unwrap();
        assert!(open(dir.path()).unwrap_err().full_text().contains("no socket"));
    }
}
