//! The real reader process over the simulated library, heard through its real socket.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    io::{BufRead, BufReader},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use warden_domain::{
    change::{Changes, Topic},
    gpu::{GpuCard, GpuNotice, GpuReading, GpuReport, Gpus},
    units::{Bytes, Celsius, MilliWatts},
};
use warden_fake_nvml::{Card, Scenario};
use warden_gpu::{Child, GpuClient, Source, wire::Frame};

const PROGRAM: &str = env!("CARGO_BIN_EXE_warden-gpu");
const MIB: u64 = 1024 * 1024;

/// A reader as the agent of a dev machine runs it.
struct Bench {
    folder: TempDir,
    client: Arc<GpuClient>,
    changes: Changes,
}

impl Bench {
    fn with(scenario: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let built = warden_fake_nvml::beside_this_test().unwrap();
        let library = warden_fake_nvml::lay(folder.path(), &built, warden_fake_nvml::named(scenario).unwrap()).unwrap();
        Self::over(folder, Some(library))
    }

    fn over(folder: TempDir, library: Option<PathBuf>) -> Self {
        let changes = Changes::new();
        let child = Child { program: PROGRAM.into(), folder: folder.path().to_owned(), library };
        Self { client: GpuClient::start(Source::Child(child), changes.clone()), folder, changes }
    }

    /// Waits until a report is as wanted.
    async fn until(&self, wanted: impl Fn(&GpuReport) -> bool) -> GpuReport {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let report = self.client.report();
            if wanted(&report) {
                return report;
            }
            assert!(Instant::now() < until, "not seen in time; last: {report:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn live(&self) -> GpuReport {
        self.until(|report| report.snapshot.reading == GpuReading::Live).await
    }

    /// The reader's process id, from who serves the socket.
    fn reader(&self) -> i32 {
        let stream = UnixStream::connect(self.folder.path().join("gpu.sock")).unwrap();
        nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::PeerCredentials).unwrap().pid()
    }
}

fn same(card: &GpuCard, told: &Card) {
    assert_eq!(Some(card.id.as_str()), told.uuid.as_deref());
    assert_eq!((&card.name, card.minor), (&told.name, told.minor));
    assert_eq!(card.memory_total, told.memory_total_mib.map(|mib| Bytes(mib * MIB)));
    assert_eq!(card.memory_used, told.memory_used_mib.map(|mib| Bytes(mib * MIB)));
    assert_eq!(card.utilisation_ratio, told.utilisation_percent.map(|percent| f64::from(percent) / 100.0));
    assert_eq!(card.temperature, told.temperature_c.map(|c| Celsius(c.into())));
    assert_eq!(card.power, told.power_mw.map(|mw| MilliWatts(mw.into())));
    assert_eq!(card.power_cap, told.power_cap_mw.map(|mw| MilliWatts(mw.into())));
    let link = [card.link.width_now, card.link.width_max, card.link.generation_now, card.link.generation_max];
    assert_eq!(link, [told.width_now, told.width_max, told.generation_now, told.generation_max]);
    let holders = card.holders.as_ref().unwrap();
    assert_eq!(holders.len(), told.holder.len());
    for (holder, told) in holders.iter().zip(&told.holder) {
        assert_eq!((holder.pid, holder.memory), (told.pid, told.memory_mib.map(|mib| Bytes(mib * MIB))));
    }
}

#[tokio::test]
async fn four_cards_are_told_figure_by_figure_and_as_simulated() {
    let bench = Bench::with("four-alike");
    let report = bench.live().await;
    let told = Scenario::parse(warden_fake_nvml::named("four-alike").unwrap()).unwrap();
    assert_eq!(report.snapshot.cards.len(), 4);
    for (card, told) in report.snapshot.cards.iter().zip(&told.card) {
        same(card, told);
        assert_eq!(card.temperature_limit, Some(Celsius(84)), "the lowest of the card's own thresholds");
        assert_eq!(card.link.narrow(), Some(false));
    }
    assert_eq!(report.snapshot.driver.as_deref(), Some("550.163.01"));
    assert!(report.snapshot.simulated);
    assert!(report.read_at.is_some());
    assert_eq!(report.notices, []);
    let holder = &report.snapshot.cards[1].holders.as_ref().unwrap()[0];
    assert_eq!((holder.name.as_deref(), report.snapshot.cards[0].pci.as_deref()), (Some("llama-server"), Some("0000:01:00.0")));
}

#[tokio::test]
async fn a_card_on_fewer_lanes_is_narrow_and_a_refused_figure_is_unknown() {
    let report = Bench::with("narrow-link").live().await;
    let told = Scenario::parse(warden_fake_nvml::named("narrow-link").unwrap()).unwrap();
    for (card, told) in report.snapshot.cards.iter().zip(&told.card) {
        same(card, told);
    }
    assert_eq!(report.snapshot.cards.iter().map(|card| card.link.narrow()).collect::<Vec<_>>(), [Some(false), Some(true)]);
    assert_eq!(report.snapshot.cards[1].power, None);
}

#[tokio::test]
async fn a_call_that_never_returns_leaves_the_last_facts_with_since_when() {
    let bench = Bench::with("hang");
    let live = bench.live().await;
    let report = bench.until(|report| matches!(report.snapshot.reading, GpuReading::Stale { .. })).await;
    let GpuReading::Stale { since_s, cause } = &report.snapshot.reading else { panic!("{report:?}") };
    assert!(*since_s >= 2.0, "{since_s}");
    assert!(cause.contains("nvmlDeviceGetTemperature") && cause.contains("card 0"), "{cause}");
    assert_eq!(report.snapshot.cards, live.snapshot.cards, "the last known cards stay");

    // Somebody who connects now is answered at once.
    let asked = Instant::now();
    let mut line = Vec::new();
    BufReader::new(UnixStream::connect(bench.folder.path().join("gpu.sock")).unwrap()).read_until(b'\n', &mut line).unwrap();
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert!(matches!(Frame::parse(&line).unwrap().snapshot.reading, GpuReading::Stale { .. }));
    let later = bench.until(|r| matches!(r.snapshot.reading, GpuReading::Stale { since_s: s, .. } if s > since_s + 1.0)).await;
    assert_eq!(later.snapshot.cards.len(), 2, "since-when goes on counting");
}

#[tokio::test]
async fn a_machine_without_the_library_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libnvidia-ml.so.1");
    let report = Bench::over(folder, Some(library)).until(|r| matches!(r.snapshot.reading, GpuReading::NoLibrary { .. })).await;
    assert_eq!((report.snapshot.cards.len(), report.snapshot.simulated, report.read_at), (0, false, None));
}

#[tokio::test]
async fn a_driver_of_another_version_is_a_failure_with_its_cause() {
    let bench = Bench::with("refusing");
    let report = bench.until(|r| matches!(r.snapshot.reading, GpuReading::Failed { .. })).await;
    let GpuReading::Failed { cause } = &report.snapshot.reading else { panic!("{report:?}") };
    assert!(cause.contains("different versions") && cause.contains("restart"), "{cause}");
}

#[tokio::test]
async fn a_broken_library_is_a_failure_and_not_an_absence() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libnvidia-ml.so.1");
    std::fs::write(&library, "no library").unwrap();
    let bench = Bench::over(folder, Some(library));
    bench.until(|r| matches!(&r.snapshot.reading, GpuReading::Failed { cause } if cause.contains("cannot be loaded"))).await;
}

#[tokio::test]
async fn cards_that_vanish_repeat_or_tell_nothing_are_sorted_out_with_a_word() {
    let bench = Bench::with("odd");
    let mut news = bench.changes.subscribe();
    let report = bench.until(|r| r.notices.iter().any(|n| matches!(n, GpuNotice::Gone { index: 0, .. }))).await;
    assert_eq!(report.snapshot.cards.iter().map(|card| card.index).collect::<Vec<_>>(), [1, 4]);
    assert!(report.notices.iter().any(|n| matches!(n, GpuNotice::Doubled { index: 2, .. })), "{:?}", report.notices);
    assert!(report.notices.iter().any(|n| matches!(n, GpuNotice::Unnamed { index: 3, .. })), "{:?}", report.notices);
    let bare = &report.snapshot.cards[1];
    assert_eq!((bare.name.as_ref(), bare.memory_total, bare.holders.as_ref(), bare.link.narrow()), (None, None, None, None));
    assert_eq!(bare.temperature_limit, Some(Celsius(87)), "50 degrees and 37 left");
    assert_eq!(news.try_recv().unwrap(), Topic::Gpus);
}

#[tokio::test]
async fn a_reader_that_is_killed_comes_back_and_the_cards_never_leave() {
    let bench = Bench::with("four-alike");
    bench.live().await;
    let first = bench.reader();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(first), nix::sys::signal::Signal::SIGKILL).unwrap();
    bench
        .until(|report| {
            assert_eq!(report.snapshot.cards.len(), 4, "{report:?}");
            UnixStream::connect(bench.folder.path().join("gpu.sock")).is_ok() && bench.reader() != first
        })
        .await;
    bench.live().await;
}

#[tokio::test]
async fn the_reader_ends_with_its_agent_even_inside_a_hanging_call() {
    let bench = Bench::with("hang");
    bench.until(|report| matches!(report.snapshot.reading, GpuReading::Stale { .. })).await;
    let socket = bench.folder.path().join("gpu.sock");
    let Bench { client, folder, .. } = bench;
    drop(client);
    let until = Instant::now() + Duration::from_secs(10);
    while UnixStream::connect(&socket).is_ok() {
        assert!(Instant::now() < until, "the reader lives on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(folder);
}

#[tokio::test]
async fn a_reader_that_is_not_built_is_told_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let child = Child { program: folder.path().join("warden-gpu"), folder: folder.path().to_owned(), library: None };
    let bench = Bench { client: GpuClient::start(Source::Child(child), Changes::new()), folder, changes: Changes::new() };
    bench.until(|r| matches!(&r.snapshot.reading, GpuReading::Failed { cause } if cause.contains("cargo build -p warden-gpu"))).await;
}
