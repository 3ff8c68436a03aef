//! Session and agent of a request: from headers and a few members of the body.
//!
//! A request id or an end user's id is no session: the first changes with every request, the second joins what has nothing in common.

use super::Scan;

/// What a client says about where a request belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// The session.
    pub session: Option<String>,
    /// The agent inside it.
    pub agent: Option<String>,
}

/// Headers that name a session, the most specific first.
const SESSION: [&str; 5] = ["x-claude-code-session-id", "x-session-id", "x-session-affinity", "session_id", "session-id"];
/// Headers that name an agent of a session.
const AGENT: [&str; 2] = ["x-claude-code-agent-id", "thread-id"];

/// Finds the ids; `header` looks one up by its lower-case name.
pub fn find<'a>(header: impl Fn(&str) -> Option<&'a str>, scan: &Scan) -> Ids {
    let from = |names: &[&str]| names.iter().filter_map(|n| header(n)).find_map(opaque);
    let first = from(&SESSION[..1]).or_else(|| scan.user_id.as_deref().and_then(session_in)).or_else(|| from(&SESSION[1..]));
    Ids { session: first.or_else(|| scan.cache_key.as_deref().and_then(opaque)), agent: from(&AGENT) }
}

/// An id of 8 to 128 harmless characters; anything else is none.
fn opaque(text: &str) -> Option<String> {
    let text = text.trim();
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
    ((8..=128).contains(&text.len()) && text.chars().all(fine)).then(|| text.to_owned())
}

/// The session inside Messages' `metadata.user_id`: a JSON text with `session_id`, or `user_…_account_…_session_…`. An account is never
/// taken for a session.
fn session_in(user_id: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Inner {
        session_id: Option<String>,
    }
    if user_id.trim_start().starts_with('{') {
        return serde_json::from_str::<Inner>(user_id).ok()?.session_id.as_deref().and_then(opaque);
    }
    user_id.rsplit_once("_session_").and_then(|(_, session)| opaque(session))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(headers: &[(&str, &'static str)], scan: &Scan) -> Ids {
        find(|name| headers.iter().find(|(n, _)| *n == name).map(|(_, v)| *v), scan)
    }

    #[test]
    fn a_session_is_found_where_each_client_puts_it() {
        let none = Scan::default();
        let session = |headers: &[(&str, &'static str)], scan: &Scan| find_in(headers, scan).session;
        assert_eq!(session(&[("x-claude-code-session-id", "aaaaaaaa-1")], &none).unwrap(), "aaaaaaaa-1");
        assert_eq!(session(&[("x-session-id", "ses_12345678")], &none).unwrap(), "ses_12345678");
        assert_eq!(session(&[("session_id", "bbbbbbbb-1")], &none).unwrap(), "bbbbbbbb-1");
        assert_eq!(session(&[("session-id", "too long a name with spaces")], &none), None);
        assert_eq!(session(&[("x-client-request-id", "cccccccc-1")], &none), None);
        let key = Scan { cache_key: Some("qwen-code:1234".to_owned()), ..Scan::default() };
        assert_eq!(session(&[], &key).unwrap(), "qwen-code:1234");
        for user_id in
            [r#"{"device_id":"ddd","account_uuid":"account-1","session_id":"dddddddd-1"}"#, "user_0f_account_eeeeeeee-9_session_dddddddd-1"]
        {
            let scan = Scan { user_id: Some(user_id.to_owned()), ..Scan::default() };
            assert_eq!(session(&[], &scan).unwrap(), "dddddddd-1");
        }
        let account = Scan { user_id: Some("user_0f_account_eeeeeeee-9".to_owned()), ..Scan::default() };
        assert_eq!(session(&[], &account), None);
        assert_eq!(find_in(&[("x-claude-code-agent-id", "a000000000001")], &none).agent.unwrap(), "a000000000001");
    }
}
