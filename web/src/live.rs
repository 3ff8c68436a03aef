//! Live fragments: one stream per open page. When something changes, the page is made again and what differs is sent; the browser
//! morphs it in place, so focus and scroll stay.
//!
//! In: a page's `look` function. Out: server-sent events, each with one or two `<hx-partial>` blocks. Nothing is sent while nothing
//! changes. A stream ends with its session.

use std::{convert::Infallible, pin::Pin, time::Duration};

use askama::Template;
use axum::{
    extract::{Path, State},
    http::HeaderMap,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use axum_extra::extract::CookieJar;
use futures_util::stream;
use tokio::{
    sync::broadcast::{Receiver, error::RecvError},
    time::{Instant, sleep, timeout_at},
};
use warden_access::http::COOKIE;
use warden_domain::{Problem, change::Topic, ids::ModelId};

use crate::{
    Web, alerts, front, gpus, home::Home, issues, keys, models, network, refusal::refuse, setup::load::Load, shell::Shell, storage, updates,
    visit::Guest,
};

/// Even without news a page is looked at again this often, because times pass and requests come and go.
const TICK: Duration = Duration::from_secs(1);
/// News within this time make one update.
const GATHER: Duration = Duration::from_millis(120);
/// Looks between two checks that the session still stands.
const SESSION_EVERY: u32 = 10;

#[derive(Template)]
#[template(path = "strip.html")]
struct StripOnly<'a> {
    page: &'a Shell,
}

/// What a page shows now: the strip, and its live region if it has one.
struct Frame {
    strip: String,
    region: String,
}

fn frame(shell: Option<&Shell>, region: Option<&dyn askama::DynTemplate>) -> Result<Frame, Problem> {
    let unmade = |cause: askama::Error| Problem::internal(format!("A live fragment could not be made: {cause}."));
    Ok(Frame {
        strip: shell.map(|page| StripOnly { page }.render()).transpose().map_err(unmade)?.unwrap_or_default(),
        region: region.map(askama::DynTemplate::dyn_render).transpose().map_err(unmade)?.unwrap_or_default(),
    })
}

type Looking = Pin<Box<dyn Future<Output = Result<Frame, Problem>> + Send>>;
type Look = Box<dyn Fn(Web, Guest) -> Looking + Send + Sync>;

/// `GET /ui/live/home`
pub(crate) async fn home(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    line(web, guest, &headers, |web, guest| async move {
        let page = Home::look(&web, &guest).await?;
        frame(Some(page.shell()), Some(&page.as_live()))
    })
    .await
}

/// `GET /ui/live/models`
pub(crate) async fn models(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    line(web, guest, &headers, |web, guest| async move {
        let page = models::list::List::look(&web, &guest).await?;
        frame(Some(page.shell()), Some(&page.as_live()))
    })
    .await
}

/// `GET /ui/live/models/{id}`
pub(crate) async fn model(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let id = ModelId::from_stored(id);
    line(web, guest, &headers, move |web, guest| {
        let id = id.clone();
        async move {
            let page = models::detail::Detail::look(&web, &guest, &id).await?;
            frame(Some(page.shell()), Some(&page.as_live()))
        }
    })
    .await
}

/// `GET /ui/live/setup/{id}`
pub(crate) async fn setup(State(web): State<Web>, headers: HeaderMap, guest: Guest, Path(id): Path<String>) -> Response {
    let id = ModelId::from_stored(id);
    line(web, guest, &headers, move |web, guest| {
        let id = id.clone();
        async move {
            let page = Load::look(&web, &guest, &id).await?;
            frame(None, Some(&page.as_live()))
        }
    })
    .await
}

/// `GET /ui/live/keys`
pub(crate) async fn keys(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    line(web, guest, &headers, |web, guest| async move {
        let page = keys::List::look(&web, &guest).await?;
        frame(Some(page.shell()), Some(&page.as_live()))
    })
    .await
}

/// `GET /ui/live/issues`
pub(crate) async fn issues(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    line(web, guest, &headers, |web, guest| async move {
        let page = issues::List::look(&web, &guest).await?;
        frame(Some(page.shell()), Some(&page.as_live()))
    })
    .await
}

/// `GET /ui/live/alerts`
pub(crate) async fn alerts(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    line(web, guest, &headers, |web, guest| async move {
        let page = alerts::Page::look(&web, &guest).await?;
        frame(Some(page.shell()), Some(&page.as_live()))
    })
    .await
}

/// `GET /ui/live/tls`
pub(crate) async fn tls(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    line(web, guest, &headers, |web, guest| async move {
        let page = front::Page::look(&web, &guest).await?;
        frame(Some(page.shell()), Some(&page.as_live()))
    })
    .await
}

/// `GET /ui/live/gpus`
pub(crate) async fn gpus(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    line(web, guest, &headers, |web, guest| async move {
        let page = gpus::Page::look(&web, &guest).await?;
        frame(Some(page.shell()), Some(&page.as_live()))
    })
    .await
}

/// `GET /ui/live/network`
pub(crate) async fn network(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    line(web, guest, &headers, |web, guest| async move {
        let page = network::Page::look(&web, &guest).await?;
        frame(Some(page.shell()), Some(&page.as_live()))
    })
    .await
}

/// `GET /ui/live/storage`
pub(crate) async fn storage(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    line(web, guest, &headers, |web, guest| async move {
        let page = storage::list::List::look(&web, &guest).await?;
        frame(Some(page.shell()), Some(&page.as_live()))
    })
    .await
}

/// `GET /ui/live/updates`
pub(crate) async fn updates(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    line(web, guest, &headers, |web, guest| async move {
        let page = updates::Page::look(&web, &guest).await?;
        frame(Some(page.shell()), Some(&page.as_live()))
    })
    .await
}

/// `GET /ui/live/strip`: for pages with nothing else that is live.
pub(crate) async fn strip(State(web): State<Web>, headers: HeaderMap, guest: Guest) -> Response {
    line(web, guest, &headers, |web, guest| async move {
        let shell = Shell::new(&web, &guest, "", "").await?;
        frame(Some(&shell), None)
    })
    .await
}

struct Line {
    web: Web,
    guest: Guest,
    cookie: String,
    look: Look,
    news: Receiver<Topic>,
    sent: Frame,
    looks: u32,
}

async fn line<F, L>(web: Web, guest: Guest, headers: &HeaderMap, look: F) -> Response
where
    F: Fn(Web, Guest) -> L + Send + Sync + 'static,
    L: Future<Output = Result<Frame, Problem>> + Send + 'static,
{
    let look: Look = Box::new(move |web, guest| Box::pin(look(web, guest)));
    let news = web.changes.subscribe();
    let sent = match look(web.clone(), guest.clone()).await {
        Ok(frame) => frame,
        Err(problem) => return refuse(&web, guest.look, headers, &problem),
    };
    let cookie = CookieJar::from_headers(headers).get(COOKIE).map(|c| c.value().to_owned()).unwrap_or_default();
    let first = Frame { strip: String::new(), region: String::new() };
    let opening = parts(&first, &sent);
    let line = Line { web, guest, cookie, look, news, sent, looks: 0 };
    let events = stream::unfold((line, opening), |(mut line, opening)| async move {
        let text = match opening {
            Some(text) => text,
            None => line.next().await?,
        };
        Some((Ok::<_, Infallible>(Event::default().data(text)), (line, None)))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

impl Line {
    /// Waits until something differs and returns the partials for it; `None` ends the stream.
    async fn next(&mut self) -> Option<String> {
        loop {
            self.wait().await?;
            self.looks += 1;
            if self.looks.is_multiple_of(SESSION_EVERY) && !matches!(self.web.accounts.session(&self.cookie).await, Ok(Some(_))) {
                return None;
            }
            let now = match (self.look)(self.web.clone(), self.guest.clone()).await {
                Ok(frame) => frame,
                Err(problem) => {
                    tracing::debug!(%problem, "a live line ends");
                    return None;
                }
            };
            let text = parts(&self.sent, &now);
            self.sent = now;
            if text.is_some() {
                return text;
            }
        }
    }

    /// News, gathered for a moment, or the tick. `None` when the agent's board is gone.
    async fn wait(&mut self) -> Option<()> {
        match timeout_at(Instant::now() + TICK, self.news.recv()).await {
            Err(_) => return Some(()),
            Ok(Err(RecvError::Closed)) => return None,
            Ok(Ok(_) | Err(RecvError::Lagged(_))) => {}
        }
        sleep(GATHER).await;
        while self.news.try_recv().is_ok() {}
        Some(())
    }
}

/// The blocks that differ. Carriage returns would end a line of the event stream, so they leave.
fn parts(before: &Frame, now: &Frame) -> Option<String> {
    let mut text = String::new();
    for (target, before, now) in [("#strip", &before.strip, &now.strip), ("#live", &before.region, &now.region)] {
        if before != now && !now.is_empty() {
            text.push_str("<hx-partial hx-target=\"");
            text.push_str(target);
            text.push_str("\" hx-swap=\"innerMorph\">");
            text.push_str(now);
            text.push_str("</hx-partial>");
        }
    }
    (!text.is_empty()).then(|| text.replace('\r', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(strip: &str, region: &str) -> Frame {
        Frame { strip: strip.to_owned(), region: region.to_owned() }
    }

    #[test]
    fn a_page_where_nothing_changed_gets_nothing() {
        assert_eq!(parts(&made("a", "b"), &made("a", "b")), None);
    }

    #[test]
    fn only_what_differs_is_sent_and_no_carriage_return_breaks_the_stream() {
        let text = parts(&made("a", "b"), &made("a", "c\r\nd")).unwrap();
        assert!(text.contains("#live") && !text.contains("#strip"));
        assert!(!text.contains('\r'));
    }
}
