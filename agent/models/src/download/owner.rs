//! Whose file a file is. Blocking: links are resolved.

use std::path::{Path, PathBuf};

use warden_domain::model::Model;

use crate::split::part_of;

/// The registered model that a file belongs to: its file, one of its parts, or something in its folder.
pub(crate) fn owner<'a>(models: &'a [Model], file: &Path) -> Option<&'a Model> {
    let names = [real(file), file.to_owned()];
    models.iter().find(|model| {
        let path = &model.config.path;
        let parts = parts(path);
        names.iter().any(|name| name.starts_with(path) || parts.contains(name))
    })
}

/// The path without links, as far as it is there already.
pub(crate) fn real(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(_), Some(folder), Some(name)) => real(folder).join(name),
        _ => path.to_owned(),
    }
}

fn parts(path: &Path) -> Vec<PathBuf> {
    let part = path.file_name().and_then(|name| name.to_str()).and_then(part_of);
    part.map(|part| part.all_names().iter().map(|name| path.with_file_name(name)).collect()).unwrap_or_default()
}
