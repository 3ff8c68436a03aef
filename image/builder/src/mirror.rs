//! Which Debian mirror this host uses, read from its apt sources: one-line files and deb822 stanzas, with comments, of any number.
//!
//! In goes the text of the files; out comes the address of the Debian archive and that of its security archive. Only the build
//! uses them: they are written neither to the image nor to the project.

/// The addresses of the archives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mirror {
    pub(crate) archive: String,
    pub(crate) security: String,
}

/// One source: where from and which suites.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    uri: String,
    suites: Vec<String>,
    components: Vec<String>,
}

/// Finds the Debian archive in the sources of a host. `files` are pairs of file name and content.
pub(crate) fn find(files: &[(String, String)]) -> Option<Mirror> {
    let sources: Vec<Source> = files.iter().flat_map(|(name, text)| if name.ends_with(".sources") { stanzas(text) } else { lines(text) }).collect();
    let archive = sources.iter().find(|s| is_debian(s) && s.suites.iter().any(|suite| plain_release(suite)))?;
    let security = sources.iter().find(|s| is_debian(s) && s.suites.iter().any(|suite| suite.ends_with("-security")));
    let archive = archive.uri.trim_end_matches('/').to_owned();
    let security = security.map_or_else(|| format!("{archive}-security"), |s| s.uri.trim_end_matches('/').to_owned());
    Some(Mirror { archive, security })
}

const RELEASES: [&str; 8] = ["bullseye", "bookworm", "trixie", "forky", "sid", "stable", "testing", "unstable"];

fn plain_release(suite: &str) -> bool {
    RELEASES.contains(&suite)
}

/// A vendor's own repository may carry a release's name as its suite; Debian's has the component `main` and a path of its own.
fn is_debian(source: &Source) -> bool {
    let known = source.suites.iter().any(|suite| RELEASES.contains(&suite.split('-').next().unwrap_or_default()));
    let path = source.uri.trim_end_matches('/');
    known && source.components.iter().any(|c| c == "main") && path.rsplit('/').next().is_some_and(|last| last.starts_with("debian"))
}

fn stanzas(text: &str) -> Vec<Source> {
    let kept: String = text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let mut found = Vec::new();
    for stanza in kept.split("\n\n") {
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in stanza.lines().filter(|line| !line.trim().is_empty()) {
            match (line.starts_with([' ', '\t']), fields.last_mut(), line.split_once(':')) {
                (true, Some((_, value)), _) => *value = format!("{value} {}", line.trim()),
                (false, _, Some((name, value))) => fields.push((name.to_ascii_lowercase(), value.trim().to_owned())),
                _ => {}
            }
        }
        let words = |name: &str| -> Vec<String> {
            fields.iter().filter(|(n, _)| n == name).flat_map(|(_, v)| v.split_whitespace()).map(str::to_owned).collect()
        };
        let off = words("enabled").first().is_some_and(|v| v == "no" || v == "false");
        if off || !words("types").iter().any(|t| t == "deb") {
            continue;
        }
        for uri in words("uris") {
            found.push(Source { uri, suites: words("suites"), components: words("components") });
        }
    }
    found
}

fn lines(text: &str) -> Vec<Source> {
    text.lines()
        .filter_map(|line| {
            let line = line.split('#').next().unwrap_or_default().trim().strip_prefix("deb ")?.trim();
            let rest = if line.starts_with('[') { line.split_once(']')?.1 } else { line };
            let mut words = rest.split_whitespace().map(str::to_owned);
            Some(Source { uri: words.next()?, suites: vec![words.next()?], components: words.collect() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, text: &str) -> Option<Mirror> {
        find(&[(name.into(), text.into())])
    }

    #[test]
    fn stanzas_with_comments_and_a_vendor_before_debian_give_debian() {
        let text = "Types: deb\nURIs: https://vendor.example/repo\nSuites: nodistro\nComponents: main\n\n\
            # comment\nTypes: deb\n# inside\nURIs: http://mirror.example/debian\nSuites: bookworm\n bookworm-updates\nComponents: main\n\n\
            Types: deb deb-src\nURIs: http://mirror.example/debian-security/\nSuites: bookworm-security\nComponents: main\n";
        let mirror = one("debian.sources", text).unwrap();
        assert_eq!(mirror.archive, "http://mirror.example/debian");
        assert_eq!(mirror.security, "http://mirror.example/debian-security");
    }

    #[test]
    fn a_one_line_file_with_options_is_understood() {
        let text = "# deb http://old.example/debian trixie main\n\
            deb [arch=amd64 signed-by=/k.gpg] https://m.example/debian/ trixie main contrib # here\n";
        let mirror = one("sources.list", text).unwrap();
        assert_eq!(mirror.archive, "https://m.example/debian");
        assert_eq!(mirror.security, "https://m.example/debian-security");
    }

    #[test]
    fn a_disabled_stanza_and_a_vendor_with_a_release_name_are_not_taken() {
        let text = "Types: deb\nEnabled: no\nURIs: http://off.example/debian\nSuites: trixie\nComponents: main\n";
        assert_eq!(one("x.sources", text), None);
        assert_eq!(one("x.list", "deb https://packages.example/cloud trixie main\n"), None);
    }
}
