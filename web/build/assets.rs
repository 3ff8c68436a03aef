//! The asset table: every file a browser loads, with its URL (which holds its hash), type and bytes.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

/// Own files, as they lie in `web/assets`.
const OWN: &[&str] = &["tokens.css", "console.css", "console.js", "chat.js", "upload.js", "mark.svg"];

/// One row per file: a name for templates, the URL, the content type, the bytes.
pub fn generate(own: &Path, fetched: &Path) -> Result<String, String> {
    let list = own.join("third-party.sha256");
    println!("cargo::rerun-if-changed={}", list.display());
    let pinned = fs::read_to_string(&list).map_err(|cause| format!("{} could not be read: {cause}", list.display()))?;

    let mut files: Vec<(String, PathBuf, String)> = Vec::new();
    for name in OWN {
        let path = own.join(name);
        let hash = hash_of(&path).map_err(|cause| format!("{} could not be read: {cause}", path.display()))?;
        files.push(((*name).to_owned(), path, hash));
    }
    for line in pinned.lines().filter(|line| !line.trim().is_empty()) {
        let (wanted, name) = line.split_once("  ").ok_or_else(|| format!("third-party.sha256 has a line that is not `hash  name`: {line}"))?;
        let path = fetched.join(name);
        let found = hash_of(&path)
            .map_err(|cause| format!("web asset {name} is missing in target/web-assets ({cause}); run `make assets` once and build again"))?;
        if found != wanted {
            return Err(format!(
                "web asset {name} in target/web-assets has SHA-256 {found}, web/assets/third-party.sha256 says {wanted}; run `make assets` and build again"
            ));
        }
        files.push((name.to_owned(), path, found));
    }

    let mut out = String::from("pub(crate) static ASSETS: &[Asset] = &[\n");
    let mut urls = String::from("/// URLs of the assets, for templates.\npub(crate) mod url {\n");
    for (name, path, hash) in &files {
        println!("cargo::rerun-if-changed={}", path.display());
        let path = path.canonicalize().map_err(|cause| format!("{}: {cause}", path.display()))?;
        let url = format!("/ui/assets/{}/{name}", &hash[..16]);
        let _ = writeln!(
            out,
            "    Asset {{ url: {url:?}, content_type: {:?}, bytes: include_bytes!({:?}) }},",
            content_type(name),
            path.display().to_string()
        );
        let constant = name.replace(['.', '-'], "_").to_uppercase();
        let _ = writeln!(urls, "    pub(crate) const {constant}: &str = {url:?};");
    }
    out.push_str("];\n");
    urls.push_str("}\n");
    Ok(out + &urls)
}

fn hash_of(path: &Path) -> std::io::Result<String> {
    println!("cargo::rerun-if-changed={}", path.display());
    Ok(hex::encode(Sha256::digest(fs::read(path)?)))
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
