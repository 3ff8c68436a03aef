//! Addresses and names: of the hub, of repositories, of the files in them. Pure.

use http::Uri;
use warden_domain::{Problem, ProblemKind, hub::RepoAsk};

/// The public hub.
pub(crate) const PUBLIC: &str = "https://huggingface.co";

const LONGEST_ADDRESS: usize = 500;
const LONGEST_NAME: usize = 200;
const LONGEST_PATH: usize = 500;

/// The address of a hub as it is used: `http` or `https`, no user name, no query, no slash at the end; an empty one is the public hub's.
pub(crate) fn endpoint(text: &str) -> Result<String, Problem> {
    let wrong = |why: &str| {
        Problem::new(ProblemKind::Invalid, format!("The address of the hub cannot be used: {why}."))
            .hint("Give the address of the public hub or of a mirror, such as http://mirror.lan:8080, or leave it empty.")
            .param("endpoint")
    };
    let text = text.trim().trim_end_matches('/');
    if text.is_empty() {
        return Ok(PUBLIC.to_owned());
    }
    if text.len() > LONGEST_ADDRESS {
        return Err(wrong("it is longer than 500 characters"));
    }
    let uri: Uri = text.parse().map_err(|_| wrong("it is no address"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong("it begins neither with http:// nor with https://"));
    }
    let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or_else(|| wrong("it names no server"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("it holds a user name or password, which would end up in logs"));
    }
    if uri.query().is_some() || text.contains('#') {
        return Err(wrong("it holds a query or a fragment"));
    }
    Ok(text.to_owned())
}

/// A checked repository with a revision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Repo {
    /// `owner/name`.
    pub(crate) name: String,
    /// Branch, tag or commit.
    pub(crate) revision: String,
}

impl Repo {
    /// Checks what somebody typed. A whole address of a repository's page is taken for its name.
    pub(crate) fn parse(ask: &RepoAsk) -> Result<Self, Problem> {
        let text = ask.repo.trim();
        let text = text.split_once("://").map_or(text, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path)).trim_matches('/');
        let fine = text.len() <= LONGEST_NAME && text.split('/').count() == 2 && text.split('/').all(is_name);
        if !fine {
            let shown: String = ask.repo.chars().filter(|c| !c.is_control()).take(80).collect();
            return Err(Problem::new(ProblemKind::Invalid, format!("\"{shown}\" is not the name of a repository."))
                .hint("Give it as owner/name, as it stands at the top of the repository's page.")
                .param("repo_id"));
        }
        let revision = match ask.revision.trim() {
            "" => "main",
            given => given,
        };
        let fine = revision.len() <= LONGEST_NAME && revision.split('/').all(is_name);
        if !fine {
            return Err(Problem::new(ProblemKind::Invalid, "That revision cannot be a branch, a tag or a commit.")
                .hint("Leave it empty for main.")
                .param("revision"));
        }
        Ok(Self { name: text.to_owned(), revision: revision.to_owned() })
    }
}

fn is_name(part: &str) -> bool {
    !part.is_empty() && !part.starts_with('.') && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

/// Whether a commit looks like one: it becomes part of addresses and of a folder's name.
pub(crate) fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether the path of a file stays in its folder and has names that any disk takes.
pub(crate) fn is_plain_path(path: &str) -> bool {
    path.len() <= LONGEST_PATH
        && path.split('/').all(|part| {
            !part.is_empty() && part.len() <= 200 && !part.starts_with('.') && !part.chars().any(|c| c.is_control() || matches!(c, '\\' | ':'))
        })
}

/// A path in an address: what is not plain is written as `%XX`, slashes stay.
pub(crate) fn escaped(path: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_' | b'~') {
            out.push(byte as char);
        } else {
            let _a_string_takes_everything = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(repo: &str, revision: &str) -> Result<Repo, Problem> {
        Repo::parse(&RepoAsk { repo: repo.to_owned(), revision: revision.to_owned() })
    }

    #[test]
    fn an_address_without_secrets_and_tricks_is_taken() {
        assert_eq!(endpoint(" http://10.0.0.5:8000/hub/ ").unwrap(), "http://10.0.0.5:8000/hub");
        assert_eq!(endpoint("").unwrap(), PUBLIC);
        for bad in ["mirror.lan", "ftp://x/y", "https://me:pw@x/y", "https://x/y?token=1", "https://x/#y", "file:///etc", "https:///x"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_repository_is_two_names_and_nothing_that_changes_an_address() {
        assert_eq!(ask("owner/Name-1.5_b", " ").unwrap(), Repo { name: "owner/Name-1.5_b".to_owned(), revision: "main".to_owned() });
        assert_eq!(ask("https://hub.example/owner/name/", "v1.0").unwrap().name, "owner/name");
        for bad in ["", "name", "a/b/c", "../b", "a/..", "a/b?x=1", "a/b#c", "a b/c", "a/b\n"] {
            assert!(ask(bad, "").is_err() || bad == "a/b\n", "{bad:?}");
        }
        assert!(ask("a/b", "../../x").is_err());
        assert_eq!(ask("a/b", "refs/pr/3").unwrap().revision, "refs/pr/3");
    }

    #[test]
    fn the_path_of_a_file_cannot_leave_its_folder() {
        for bad in ["../x", "a/../b", "/x", "a//b", "a/", ".git/x", "a\\b", "a\nb", "", "c:x"] {
            assert!(!is_plain_path(bad), "{bad:?}");
        }
        assert!(is_plain_path("Q4_K_M/model 1-00001-of-00002.gguf"));
        assert_eq!(escaped("a b/ü#?.gguf"), "a%20b/%C3%BC%23%3F.gguf");
    }
}
