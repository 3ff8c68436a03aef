//! Takes secrets out of a text that somebody is going to hand on. Pure.
//!
//! Engines get no secret of the box, but clients put keys where they do not belong, and a log may repeat what it was sent.

/// How secrets begin: keys of the box, of the hub, of others' services.
const BEGINNINGS: &[&str] = &["vw_", "hf_", "sk-", "sk_", "ghp_", "github_pat_", "xoxb-", "AKIA"];
/// Shorter words are no secrets, but words that begin alike.
const SHORTEST: usize = 12;
/// Words after which a secret follows.
const BEFORE: &[&str] = &["bearer", "authorization:", "x-api-key:", "api-key:", "api_key:", "password:", "token:"];
const MARK: &str = "[secret]";

/// The text with a marker for each secret.
pub(crate) fn redacted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut follows = false;
    for piece in text.split_inclusive(is_edge) {
        let word = piece.trim_end_matches(is_edge);
        let edge = &piece[word.len()..];
        if word.is_empty() {
            out.push_str(edge);
            continue;
        }
        let known = BEGINNINGS.iter().any(|begin| word.starts_with(begin)) && word.len() >= SHORTEST;
        let low = word.to_ascii_lowercase();
        // `Authorization: Bearer x`: what follows the last such word is the secret.
        let announces = BEFORE.contains(&low.as_str()) || (edge.starts_with('=') && BEFORE.contains(&format!("{low}:").as_str()));
        if known || (follows && !announces) {
            out.push_str(MARK);
        } else {
            out.push_str(word);
        }
        follows = announces;
        out.push_str(edge);
    }
    out
}

fn is_edge(c: char) -> bool {
    c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '=' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '&' | '?' | '\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planted_secrets_do_not_come_out() {
        let text = "srv: key=vw_0123456789abcdef, \"hf_abcdefghijklmnop\" Authorization: Bearer abc.def.ghi\nx-api-key: zzzzzz\npassword=hunter2 sk-ant-api03-1234567890";
        let out = redacted(text);
        for secret in ["0123456789", "abcdefghijklmnop", "abc.def.ghi", "zzzzzz", "hunter2", "1234567890"] {
            assert!(!out.contains(secret), "{out}");
        }
        assert!(out.contains("srv: key=[secret], \"[secret]\" Authorization: Bearer [secret]\n"), "{out}");
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        let text = "0.00.012 I llama_server: listening on /run/x.sock\n\n  sk-x hf_a State: S (sleeping)\ttokens: 5 é\n";
        assert_eq!(redacted(text), text);
    }
}
