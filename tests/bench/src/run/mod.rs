//! One measurement of all arms: starts what is missing, goes round them as often as asked, and writes the report.
//!
//! In: where our gateway listens, its process and a key; where the other gateways are installed. Out: the table on standard output, the
//! report as a file. All arms run from the beginning to the end, and each round measures every figure on each of them in turn, so that
//! a slow minute of the machine hits all of them.

mod arms;
mod figures;

use std::{collections::BTreeMap, fs, net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    load::{self, Dialect, Left, Target},
    process,
    report::{self, COLLECTED, DIRECT, Expectation, OURS, Report, Round, Series},
    stats,
};
use arms::{Arm, Arms};

/// Rounds whose latencies must count.
const ROUNDS_THAT_COUNT: usize = 3;

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct Wishes {
    /// Where our gateway listens.
    #[arg(long)]
    agent: SocketAddr,
    /// Its process.
    #[arg(long)]
    agent_pid: u32,
    /// SHA-256 of its program, for the report.
    #[arg(long, default_value = "")]
    agent_sha256: String,
    /// A file that holds a key of it.
    #[arg(long)]
    key_file: PathBuf,
    /// The model it serves.
    #[arg(long, default_value = "bench")]
    model: String,
    /// The model it serves with an engine of the kind that is asked for a stream whatever the client wants.
    #[arg(long)]
    collected_model: Option<String>,
    /// Where the other gateways are installed.
    #[arg(long)]
    peers: Option<PathBuf>,
    /// Only these arms.
    #[arg(long, value_delimiter = ',')]
    arms: Vec<String>,
    /// Only these figures.
    #[arg(long, value_delimiter = ',')]
    figures: Vec<String>,
    /// How often.
    #[arg(long, default_value_t = 5)]
    repetitions: usize,
    /// Streams that lie idle.
    #[arg(long, default_value_t = 1000)]
    streams: usize,
    /// Clients that leave.
    #[arg(long, default_value_t = 10_000)]
    cancels: usize,
    /// The report.
    #[arg(long)]
    report: PathBuf,
}

impl Wishes {
    fn wants(&self, figure: &str) -> bool {
        self.figures.is_empty() || self.figures.iter().any(|f| f == figure)
    }
}

/// Measures.
///
/// # Errors
/// A sentence when an arm does not come up or answers wrongly.
pub fn run(wishes: &Wishes) -> Result<(), String> {
    let key = fs::read_to_string(&wishes.key_file).map_err(|e| format!("{}: {e}", wishes.key_file.display()))?.trim().to_owned();
    let ours = Target {
        name: OURS.to_owned(),
        address: wishes.agent,
        model: wishes.model.clone(),
        key: Some(key),
        pid: Some(wishes.agent_pid),
        with_children: false,
    };
    let (machine, machine_speed_ms) = process::machine();
    println!("bench: {machine}, {machine_speed_ms:.0} ms for a fixed sum, load {:.1}", process::load());

    let mut memory = BTreeMap::new();
    note_memory(&mut memory, "idle", wishes.agent_pid)?;
    if wishes.wants("rss") {
        let streams = load::idle(&ours, wishes.streams)?;
        std::thread::sleep(Duration::from_secs(2));
        note_memory(&mut memory, "streams", wishes.agent_pid)?;
        drop(streams);
    }

    let arms = Arms::start(&ours, wishes.collected_model.as_deref(), wishes.peers.as_deref(), &wishes.arms)?;
    let (mut series, mut rounds, mut busy) = (Series::new(), Vec::new(), Vec::new());
    for n in 1..=wishes.repetitions {
        let look = process::Busy::now();
        rounds.push(round(wishes, &arms, &mut series)?);
        busy.push(look.since());
        println!("bench: round {n} of {} done; the machine was {:.0} % busy", wishes.repetitions, look.since() * 100.0);
    }
    note_memory(&mut memory, "after_load", wishes.agent_pid)?;

    let dialects: &[Dialect] = if wishes.wants("messages_180k_us") { &[Dialect::Chat, Dialect::Messages] } else { &[Dialect::Chat] };
    let left = if wishes.wants("cancels") { load::cancel(&ours, dialects, wishes.cancels, 7)? } else { Left::default() };
    note_memory(&mut memory, "after_cancels", wishes.agent_pid)?;

    let figures = report::spreads(&series);
    let (thresholds, void, mut expectations) = against(&figures, &rounds, &memory, wishes.wants("latency"));
    expectations.extend(report::below_peers(&figures, &arms.peer_names()));
    let names: Vec<String> = arms.all.iter().map(|arm| arm.target.name.clone()).collect();
    println!("{}", report::table(&figures, &names));
    println!("memory of the agent in MB: {memory:.1?}");
    println!("clients that left: {left:?}");
    void.iter().for_each(|why| println!("void: {why}"));
    expectations.iter().filter(|e| !e.holds).for_each(|e| println!("not met: {}", e.says));
    let report = Report {
        machine,
        machine_speed_ms,
        agent_sha256: wishes.agent_sha256.clone(),
        peers: arms.versions(),
        repetitions: wishes.repetitions,
        ratios: report::ratios(&figures),
        figures,
        thresholds,
        busy,
        void,
        memory_mb: memory,
        left,
        expectations,
    };
    let text = serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?;
    fs::write(&wishes.report, text).map_err(|e| format!("{}: {e}", wishes.report.display()))
}

/// Every figure on every arm, once.
fn round(wishes: &Wishes, arms: &Arms, series: &mut Series) -> Result<Round, String> {
    for figure in figures::ALL.iter().filter(|f| wishes.wants(f.name)) {
        for arm in arms.all.iter().filter(|arm| arm.does(figure.dialect)) {
            let Some(count) = figure.count(arm) else { continue };
            let cost = load::closed(&arm.target, figure.dialect, figure.ask, count).map_err(|why| format!("{}: {why}", figure.name))?;
            let mut note =
                |name: &str, value: f64| series.entry(name.to_owned()).or_default().entry(arm.target.name.clone()).or_default().push(value);
            if let Some(us) = cost.cpu_us {
                note(figure.name, us / figure.per);
            }
            if figure.name == "chat_1k_us" {
                note("chat_1k_per_s", cost.rate);
            }
        }
    }
    let mut latencies = Round::new();
    if wishes.wants("latency") {
        for arm in arms.all.iter().filter(|arm| arm.keeps_up() && !arm.collects()) {
            let latency = load::open(&arm.target, figures::SMALL, 1000, Duration::from_secs(5)).map_err(|why| format!("latency: {why}"))?;
            latencies.insert(arm.target.name.clone(), (latency.p50_ms, latency.p99_ms));
            for (name, value) in [("p50_ms", latency.p50_ms), ("p99_ms", latency.p99_ms)] {
                series.entry(name.to_owned()).or_default().entry(arm.target.name.clone()).or_default().push(value);
            }
        }
    }
    Ok(latencies)
}

/// The figures that have limits, what is void, and what must hold besides.
fn against(
    figures: &BTreeMap<String, BTreeMap<String, stats::Spread>>,
    rounds: &[Round],
    memory: &BTreeMap<String, f64>,
    latency: bool,
) -> (BTreeMap<String, f64>, Vec<String>, Vec<Expectation>) {
    let mut limits: BTreeMap<String, f64> =
        figures.iter().filter(|(name, _)| name.ends_with("_us")).filter_map(|(name, arms)| Some((name.clone(), arms.get(OURS)?.median))).collect();
    for (name, at) in [("rss_idle_mb", "idle"), ("rss_1000_streams_mb", "streams")] {
        if let Some(mb) = memory.get(at) {
            limits.insert(name.to_owned(), *mb);
        }
    }
    if !latency {
        return (limits, Vec::new(), Vec::new());
    }
    let (added, void) = report::added(rounds);
    let enough = Expectation {
        holds: added.len() >= ROUNDS_THAT_COUNT.min(rounds.len()),
        says: format!("{} of {} rounds were quiet enough for latencies", added.len(), rounds.len()),
    };
    let (p50, p99): (Vec<f64>, Vec<f64>) = added.into_iter().unzip();
    for (name, values) in [("added_p50_ms", p50), ("added_p99_ms", p99)] {
        if let Some(spread) = stats::spread(&values).filter(|_| enough.holds) {
            limits.insert(name.to_owned(), spread.median);
        }
    }
    (limits, void, vec![enough])
}

fn note_memory(memory: &mut BTreeMap<String, f64>, when: &str, pid: u32) -> Result<(), String> {
    #[allow(clippy::cast_precision_loss, reason = "megabytes")]
    let mb = process::rss_bytes(pid, false)? as f64 / 1e6;
    memory.insert(when.to_owned(), mb);
    Ok(())
}

impl Arm {
    /// Whether it is the one whose whole answers are put together from streams: one figure shows what that costs.
    fn collects(&self) -> bool {
        self.target.name == COLLECTED
    }

    fn keeps_up(&self) -> bool {
        self.peer.is_none_or(crate::peers::Peer::is_fast)
    }

    fn does(&self, dialect: Dialect) -> bool {
        let translates = self.target.name == OURS || self.peer == Some(crate::peers::Peer::Smg);
        dialect == Dialect::Chat || translates
    }

    fn is_measured(&self) -> bool {
        self.target.name != DIRECT
    }
}
