//! Fetching one file: from its checked bytes on, at most so fast and at least so fast, again after a break, until it is whole, somebody
//! stops it, or it cannot be had.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use warden_domain::{Problem, ProblemKind, clock, download::DownloadState, hub::Promise};

use super::{
    live::Live,
    part::{Before, NotNamed, Part, changed, is_already},
    record::RecordFile,
};
use crate::{
    hub::{Fault, HubRoom, Repo, chain},
    registry::blocking,
};

/// Bytes gathered before they are written.
const PIECE: usize = 512 << 10;
/// So many bytes are at risk at most.
const SYNC_EVERY: u64 = 16 << 20;
/// A slow line's bytes are written and put onto the disk at least so often.
const WRITTEN_WITHIN: Duration = Duration::from_secs(1);
const SAFE_WITHIN: Duration = Duration::from_secs(3);
/// How often somebody looks whether the transfer stands still.
const TICK: Duration = Duration::from_millis(250);
/// How often a file is begun anew in one run.
const BEGUN_ANEW: u32 = 3;
/// Fewer bytes than this within the window of `Rules::stall` is standing still.
const LEAST: u64 = 16 << 10;

/// The rules of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A line that gives next to nothing for so long is begun anew.
    pub stall: Duration,
    /// How long it waits before it tries again; doubled each time without progress.
    pub pause: Duration,
    /// The longest of these waits.
    pub longest_pause: Duration,
    /// How often it tries again without getting any further.
    pub tries: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self { stall: Duration::from_secs(30), pause: Duration::from_secs(1), longest_pause: Duration::from_secs(60), tries: 200 }
    }
}

/// How a transfer ended without a file.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Somebody wanted it.
    Stopped,
    /// It cannot be had.
    Failed(Problem),
}

impl From<Problem> for Ended {
    fn from(problem: Problem) -> Self {
        Self::Failed(problem)
    }
}

/// Why one connection did not bring the rest.
enum Broke {
    Stopped,
    Failed(Problem),
    /// The hub or the line.
    Fault(Fault),
    /// It gave something else than the next bytes; it begins anew.
    Anew(&'static str),
}

/// One file of a download.
pub(crate) struct Transfer<'a> {
    pub(crate) hub: &'a HubRoom,
    pub(crate) live: &'a Arc<Live>,
    pub(crate) repo: &'a Repo,
    pub(crate) commit: &'a str,
    pub(crate) index: usize,
    pub(crate) file: &'a RecordFile,
    pub(crate) target: PathBuf,
    pub(crate) rules: Rules,
    /// Hears the bytes of the whole download.
    pub(crate) moved: &'a (dyn Fn(u64) + Send + Sync),
}

impl Transfer<'_> {
    /// Fetches it under its name.
    pub(crate) async fn run(&self) -> Result<(), Ended> {
        let (target, size, promise) = (self.target.clone(), self.file.size.0, self.file.promise.clone());
        if blocking(move || is_already(&target, size, &promise)).await? {
            return self.named(false).await;
        }
        let (target, size, promise) = (self.target.clone(), self.file.size.0, self.file.promise.clone());
        let before = Before { safe: self.file.safe, prefix: self.file.prefix.clone() };
        let mut part = blocking(move || Part::open(&target, size, &promise, &before)).await?;
        tracing::info!(file = self.file.path, from = part.at(), of = size, "a download begins");
        let (mut stood, mut failures, mut anew) = (part.at(), 0u32, 0u32);
        while part.at() < size || size == 0 {
            let (back, outcome) = self.once(part).await;
            part = back.ok_or_else(|| Problem::internal("Writing a download broke off."))?;
            if part.at() >= stood + LEAST {
                (stood, failures) = (part.at(), 0);
            }
            let fault = match outcome {
                Ok(()) if part.at() >= size => break,
                Ok(()) => Fault::BrokeOff { cause: "the server ended it early".to_owned() },
                Err(Broke::Stopped) => {
                    self.keep(part).await?;
                    return Err(Ended::Stopped);
                }
                Err(Broke::Failed(problem)) => {
                    self.keep(part).await?;
                    return Err(Ended::Failed(problem));
                }
                Err(Broke::Anew(why)) => {
                    anew += 1;
                    if anew > BEGUN_ANEW {
                        return Err(Ended::Failed(self.never_whole(why)));
                    }
                    tracing::info!(file = self.file.path, why, "a download begins anew");
                    part = blocking(move || part.restart().map(|()| part)).await?;
                    stood = 0;
                    continue;
                }
                Err(Broke::Fault(fault)) => fault,
            };
            failures += 1;
            part = self.pause(part, &fault, failures).await?;
        }
        match blocking(move || Ok(part.finish())).await? {
            Ok(()) => self.named(true).await,
            Err(NotNamed::Disk(problem)) => Err(Ended::Failed(problem)),
            Err(NotNamed::OtherContent(problem)) => {
                self.note(0, String::new()).await?;
                self.live.moved(self.index, 0);
                Err(Ended::Failed(problem))
            }
        }
    }

    fn never_whole(&self, why: &str) -> Problem {
        let name = &self.file.path;
        Problem::new(ProblemKind::Upstream, format!("{name} was begun anew {BEGUN_ANEW} times and did not come whole: {why}."))
            .hint("Resume it when the line is better; a server in between that cannot go on in the middle of a file needs an unbroken one.")
    }

    /// Waits after a fault, as long as the hub says or a little longer each time.
    async fn pause(&self, part: Part, fault: &Fault, failures: u32) -> Result<Part, Ended> {
        let problem = fault.problem(&self.hub.subject(self.repo));
        let part = self.synced(part).await?;
        if !fault.passes() || failures > self.rules.tries {
            return Err(Ended::Failed(problem));
        }
        let usual = self.rules.pause.saturating_mul(1 << (failures - 1).min(10)).min(self.rules.longest_pause);
        let wait = fault.wait().unwrap_or(usual);
        tracing::info!(file = self.file.path, at = part.at(), %problem, wait_s = wait.as_secs(), "a download broke off and goes on from there");
        if let Ok(span) = jiff::SignedDuration::try_from(wait) {
            self.live.waits_until(clock::now().checked_add(span).unwrap_or_else(|_| clock::now()));
        }
        self.live_enters(DownloadState::Waiting, Some(problem)).await;
        tokio::select! {
            () = self.live.stopped() => return Err(Ended::Stopped),
            () = tokio::time::sleep(wait) => {}
        }
        self.live_enters(DownloadState::Running, None).await;
        Ok(part)
    }

    async fn live_enters(&self, state: DownloadState, problem: Option<Problem>) {
        let live = self.live.clone();
        let _written_or_logged = blocking(move || {
            live.enter(state, problem.as_ref());
            Ok(())
        })
        .await;
    }

    /// One connection. The part always comes back, unless its writer died.
    async fn once(&self, part: Part) -> (Option<Part>, Result<(), Broke>) {
        let at = part.at();
        let wanted = match self.hub.file(&self.repo.name, self.commit, &self.file.path) {
            Ok(wanted) => crate::hub::Wanted { range: (at > 0).then_some((at, None)), ..wanted },
            Err(fault) => return (Some(part), Err(Broke::Fault(fault))),
        };
        let answer = tokio::select! {
            () = self.live.stopped() => return (Some(part), Err(Broke::Stopped)),
            answer = self.hub.client().get(&wanted) => answer,
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(Fault::Answer(refusal)) if refusal.status == 416 => {
                return (Some(part), Err(Broke::Anew("the hub has fewer bytes of it")));
            }
            Err(fault) => return (Some(part), Err(Broke::Fault(fault))),
        };
        if let Err(broke) = self.check_head(&answer.response, &answer.first, at) {
            return (Some(part), Err(broke));
        }
        self.read(answer.response.into_body(), part).await
    }

    fn check_head(&self, response: &Response<Incoming>, first: &HeaderMap, at: u64) -> Result<(), Broke> {
        let size = self.file.size.0;
        let text = |headers: &HeaderMap, name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if let (Promise::Sha256(promised), Some(tag)) = (&self.file.promise, text(first, "x-linked-etag")) {
            let tag = tag.trim_start_matches("W/").trim_matches('"').to_ascii_lowercase();
            if tag.len() == 64 && tag != *promised {
                return Err(Broke::Failed(changed(&self.target, "it has another checksum now")));
            }
        }
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let range = text(response.headers(), header::CONTENT_RANGE.as_str()).unwrap_or_default();
                let (begin, total) = range.strip_prefix("bytes ").and_then(|rest| rest.split_once('/')).unwrap_or_default();
                if total != "*" && total.parse() != Ok(size) {
                    return Err(Broke::Failed(changed(&self.target, "it has another size now")));
                }
                let begins = begin.split_once('-').and_then(|(begin, _)| begin.parse::<u64>().ok());
                if begins == Some(at) { Ok(()) } else { Err(Broke::Anew("the hub answers with another piece of it")) }
            }
            _ => {
                let length = text(response.headers(), header::CONTENT_LENGTH.as_str()).and_then(|length| length.parse::<u64>().ok());
                if length.is_some_and(|length| length != size) {
                    return Err(Broke::Failed(changed(&self.target, "it has another size now")));
                }
                if at == 0 { Ok(()) } else { Err(Broke::Anew("the hub does not go on in the middle of it")) }
            }
        }
    }

    async fn read(&self, mut body: Incoming, mut part: Part) -> (Option<Part>, Result<(), Broke>) {
        let begun = Instant::now();
        let (mut got, mut gathered, mut unsafe_bytes) = (0u64, Vec::with_capacity(PIECE), 0u64);
        let mut window = (Instant::now(), 0u64);
        let (mut written_at, mut safe_at) = (Instant::now(), Instant::now());
        let outcome = loop {
            let frame = tokio::select! {
                () = self.live.stopped() => break Err(Broke::Stopped),
                frame = tokio::time::timeout(TICK, body.frame()) => frame,
            };
            let limit = self.hub.reaching().limit.map(|limit| limit.0);
            let ended = match frame {
                Err(_) => false,
                Ok(None) => true,
                Ok(Some(Err(cause))) => break Err(Broke::Fault(Fault::BrokeOff { cause: chain(&cause) })),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        got += data.len() as u64;
                        window.1 += data.len() as u64;
                        gathered.extend_from_slice(&data);
                    }
                    false
                }
            };
            let due = !gathered.is_empty() && written_at.elapsed() >= WRITTEN_WITHIN;
            if gathered.len() >= PIECE || ended || due {
                let piece = std::mem::replace(&mut gathered, Vec::with_capacity(PIECE));
                unsafe_bytes += piece.len() as u64;
                let sync = unsafe_bytes >= SYNC_EVERY || safe_at.elapsed() >= SAFE_WITHIN;
                written_at = Instant::now();
                let (back, written) = self.write(part, piece, sync).await;
                let Some(back) = back else { return (None, Err(Broke::Stopped)) };
                part = back;
                if let Err(problem) = written {
                    break Err(Broke::Failed(problem));
                }
                if sync {
                    (unsafe_bytes, safe_at) = (0, Instant::now());
                }
                (self.moved)(self.live.moved(self.index, part.at()));
            }
            if ended {
                break Ok(());
            }
            if window.0.elapsed() >= self.rules.stall {
                // A limit of ours is no slowness of theirs.
                let least = limit.map_or(LEAST, |limit| LEAST.min(limit * self.rules.stall.as_secs() / 2));
                if window.1 < least {
                    let cause = format!("next to nothing came within {} s", self.rules.stall.as_secs());
                    break Err(Broke::Fault(Fault::BrokeOff { cause }));
                }
                window = (Instant::now(), 0);
            }
            if let Some(limit) = limit.filter(|limit| *limit > 0) {
                let allowed = Duration::from_millis(got.saturating_mul(1000) / limit);
                tokio::select! {
                    () = self.live.stopped() => break Err(Broke::Stopped),
                    () = tokio::time::sleep(allowed.saturating_sub(begun.elapsed()).min(Duration::from_secs(1))) => {}
                }
            }
        };
        if gathered.is_empty() || matches!(outcome, Err(Broke::Failed(_))) {
            return (Some(part), outcome);
        }
        // What came before a break counts.
        let (back, written) = self.write(part, gathered, false).await;
        if let Some(back) = &back {
            (self.moved)(self.live.moved(self.index, back.at()));
        }
        (back, written.map_err(Broke::Failed).and(outcome))
    }

    async fn write(&self, mut part: Part, piece: Vec<u8>, sync: bool) -> (Option<Part>, Result<(), Problem>) {
        let (live, index) = (self.live.clone(), self.index);
        let done = tokio::task::spawn_blocking(move || {
            let written = part.take(&piece).and_then(|()| if sync { keep_safe(&part, &live, index) } else { Ok(()) });
            (part, written)
        });
        done.await.map_or_else(|_| (None, Err(Problem::internal("Writing a download broke off."))), |(part, written)| (Some(part), written))
    }

    async fn synced(&self, part: Part) -> Result<Part, Problem> {
        let (live, index) = (self.live.clone(), self.index);
        blocking(move || keep_safe(&part, &live, index).map(|()| part)).await
    }

    async fn keep(&self, part: Part) -> Result<(), Problem> {
        self.synced(part).await.map(drop)
    }

    async fn note(&self, safe: u64, prefix: String) -> Result<(), Problem> {
        let (live, index) = (self.live.clone(), self.index);
        blocking(move || note(&live, index, safe, prefix)).await
    }

    async fn named(&self, ours: bool) -> Result<(), Ended> {
        let (live, index, size) = (self.live.clone(), self.index, self.file.size.0);
        (self.moved)(live.moved(index, size));
        let done = move || {
            live.change(|record| {
                if let Some(file) = record.files.get_mut(index) {
                    (file.done, file.ours) = (true, ours);
                    file.safe = size;
                }
            })
        };
        Ok(blocking(done).await?)
    }
}

fn keep_safe(part: &Part, live: &Live, index: usize) -> Result<(), Problem> {
    let (safe, prefix) = part.sync()?;
    note(live, index, safe, prefix)
}

fn note(live: &Live, index: usize, safe: u64, prefix: String) -> Result<(), Problem> {
    live.change(|record| {
        if let Some(file) = record.files.get_mut(index) {
            (file.safe, file.prefix) = (safe, prefix);
        }
    })
}

/// The parts and put-aside files of a target.
pub(crate) fn leftovers(target: &Path) -> [PathBuf; 2] {
    [super::part::hidden(target), super::part::aside(target)]
}
