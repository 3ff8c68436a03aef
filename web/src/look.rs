//! How the console looks for this browser: theme and language, kept in two cookies and written into the first byte of every page,
//! so that nothing flashes and no script is needed.

use axum::{
    Form,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use axum_extra::extract::CookieJar;
use serde::Deserialize;

use crate::{catalogue::Lang, respond};

/// The theme a browser asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Theme {
    /// As the device is set.
    #[default]
    Auto,
    /// Always light.
    Light,
    /// Always dark.
    Dark,
}

impl Theme {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        [Self::Auto, Self::Light, Self::Dark].into_iter().find(|theme| theme.word() == word)
    }
}

/// Theme and language of one browser.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) theme: Theme,
    pub(crate) lang: Lang,
}

impl Look {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let jar = CookieJar::from_headers(headers);
        let theme = jar.get("warden_theme").and_then(|c| Theme::from_word(c.value())).unwrap_or_default();
        let lang = jar
            .get("warden_lang")
            .and_then(|c| Lang::from_code(c.value()))
            .unwrap_or_else(|| Lang::accepted(headers.get(header::ACCEPT_LANGUAGE).and_then(|v| v.to_str().ok()).unwrap_or_default()));
        Self { theme, lang }
    }
}

#[derive(Deserialize)]
pub(crate) struct Choice {
    theme: Option<String>,
    lang: Option<String>,
    #[serde(default)]
    back: String,
}

/// `POST /ui/look`: keeps the choice and shows the same page again.
pub(crate) async fn choose(headers: HeaderMap, Form(choice): Form<Choice>) -> Response {
    let mut response = if respond::is_htmx(&headers) {
        (StatusCode::NO_CONTENT, [("hx-refresh", "true")]).into_response()
    } else {
        respond::see_other(respond::own_path(&choice.back))
    };
    let theme = choice.theme.as_deref().and_then(Theme::from_word).map(|theme| ("warden_theme", theme.word()));
    let lang = choice.lang.as_deref().and_then(Lang::from_code).map(|lang| ("warden_lang", lang.code()));
    for (name, word) in [theme, lang].into_iter().flatten() {
        if let Ok(cookie) = HeaderValue::from_str(&format!("{name}={word}; Path=/ui; Max-Age=31536000; HttpOnly; SameSite=Lax")) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forged_cookie_changes_nothing() {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_static("warden_theme=\"><script>; warden_lang=xx"));
        headers.insert(header::ACCEPT_LANGUAGE, HeaderValue::from_static("hi"));
        let look = Look::of(&headers);
        assert_eq!(look.theme, Theme::Auto);
        assert_eq!(look.lang, Lang::Hi);
    }
}
