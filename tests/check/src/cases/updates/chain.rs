//! One machine that lives through many updates, as a box in the field does: good ones first, then broken ones, then refusals.
//!
//! In: what shall be published next. Out: a [`Trip`] per update: what was seen on the way. The machine is kept between cases and ends with the
//! run; a case that is run alone gets a fresh one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use warden_vm::quiet;

use super::calls;
use super::machine::{MODEL, Setup, UpdateBox};
use super::publisher::{Publisher, Target, Wanted, entry};
use super::server::ChannelServer;
use super::works::{Build, FIRST, SECOND, THIRD, Works};
use crate::console::Console;
use crate::result::CaseResult;
use crate::stage::{Stage, Task};

static BENCH: Mutex<Option<Bench>> = Mutex::new(None);

/// Everything the cases of this list share.
pub struct Bench {
    /// What was built.
    pub works: Works,
    /// The publisher all boxes trust.
    pub publisher: Publisher,
    /// Its server.
    pub server: ChannelServer,
    /// The machine that lives through all of it.
    pub machine: Option<UpdateBox>,
    /// The number of the next release.
    pub release: u64,
    /// The good updates so far.
    pub trips: Vec<Trip>,
    key: Option<String>,
    keep: bool,
}

/// What was seen of one good update.
#[derive(Clone, Debug)]
pub struct Trip {
    /// Bytes of the image.
    pub image: u64,
    /// Bytes the server sent for it.
    pub sent: u64,
    /// From the call to the end of the write.
    pub install: Duration,
    /// Bytes the disk was written while it was installed.
    pub written: u64,
    /// From the last answer of the old system to the first of the new one.
    pub downtime: Duration,
    /// From the firmware to the first answer of a start without an update.
    pub boot: Duration,
    /// From the restart to the confirmation.
    pub confirmed_after: Duration,
    /// The model served before.
    pub served: bool,
    /// How long after the first answer of the new system the model answered again; nothing when it did not.
    pub model_back: Option<Duration>,
    /// The document about updates at the end.
    pub document: Value,
}

/// The bench, held for one case.
pub struct Held(MutexGuard<'static, Option<Bench>>);

impl Held {
    /// The bench itself.
    ///
    /// # Errors
    /// When it is gone.
    pub fn get(&mut self) -> Result<&mut Bench, String> {
        self.0.as_mut().ok_or_else(|| "the bench is gone".to_owned())
    }
}

/// The bench for one case.
///
/// # Errors
/// A sentence with what could not be made.
pub fn bench(stage: &mut Stage, task: &Task) -> Result<Held, String> {
    // Other machines end first: one at a time.
    stage.unplug();
    if task.id != "clock" {
        super::offline::strike();
    }
    let mut held = BENCH.lock().unwrap_or_else(PoisonError::into_inner);
    if held.is_none() {
        let mut works = Works::open(stage, &task.log)?;
        // Makes the keys of a developer, too, where there are none yet.
        works.golden(stage, &task.log)?;
        let folder = works.folder().join("publisher");
        let _older_run = std::fs::remove_dir_all(&folder);
        let publisher = Publisher::trusted(&stage.places, &folder, &task.log)?;
        std::fs::create_dir_all(folder.join("www")).map_err(|e| format!("{}: {e}", folder.display()))?;
        let server = ChannelServer::start(&folder.join("www"), &task.log)?;
        let keep = stage.images().0.as_they_are();
        *held = Some(Bench { works, publisher, server, machine: None, release: 1, trips: Vec::new(), key: None, keep });
    }
    let mut held = Held(held);
    let bench = held.get()?;
    bench.publisher = bench.publisher.logging_to(&task.log);
    bench.server.mend();
    if let Some(machine) = &mut bench.machine {
        machine.log_to(stage, task);
    }
    Ok(held)
}

/// Ends what was shared.
pub fn strike() {
    if let Some(mut bench) = BENCH.lock().unwrap_or_else(PoisonError::into_inner).take() {
        bench.machine = None;
        bench.works.clear(bench.keep);
    }
}

impl Bench {
    /// The machine, switched on and answering.
    ///
    /// # Errors
    /// A sentence when it does not come up.
    pub fn machine(&mut self, stage: &mut Stage, task: &Task) -> Result<&mut UpdateBox, String> {
        if self.machine.is_none() {
            self.machine = Some(UpdateBox::start(&mut self.works, stage, "chain", &Setup::default(), &task.log)?);
        }
        self.machine.as_mut().ok_or_else(|| "there is no machine".to_owned())
    }

    /// Publishes the next release of the usual channel with this system.
    ///
    /// # Errors
    /// A sentence with what could not be made.
    pub fn publish(&mut self, build: Build, stage: &mut Stage, task: &Task) -> Result<(), String> {
        let file = self.works.update(build, stage, &task.log)?;
        self.publish_wanted(&Wanted::version(self.release, vec![Target::os(build.version(), &file)]))
    }

    /// Publishes a release of the usual channel; the next one is higher.
    ///
    /// # Errors
    /// A sentence with the program's words.
    pub fn publish_wanted(&mut self, wanted: &Wanted) -> Result<(), String> {
        self.publisher.publish("stable", wanted)?;
        self.release = self.release.max(wanted.version) + 1;
        Ok(())
    }

    /// The channel as a guest reaches it.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}/stable", self.server.for_guest())
    }

    /// A key for chats, made once.
    fn key(&mut self, console: &Console) -> Result<String, String> {
        if self.key.is_none() {
            self.key = Some(console.make_key("updates")?.1);
        }
        self.key.clone().ok_or_else(|| "there is no key".to_owned())
    }

    /// From published to staged over the air; how long that took, and bytes the server sent.
    ///
    /// # Errors
    /// A sentence with the step that failed.
    pub fn stage_over_the_air(&mut self, build: Build, stage: &mut Stage, task: &Task) -> Result<(Duration, u64), String> {
        self.publish(build, stage, task)?;
        let address = self.address();
        let console = self.machine(stage, task)?.console()?;
        calls::follow(&console, &address, "off")?;
        let asked = calls::check(&console)?;
        if !asked.done {
            return Err(format!("the channel was not believed: {} {}", asked.code, asked.sentence));
        }
        let sha256 = calls::offered(&calls::document(&console)?, build.version())?;
        self.server.take_asked();
        let begun = Instant::now();
        let ended = calls::install(&console, &sha256, quiet(90))?;
        let took = begun.elapsed();
        if !ended.done {
            return Err(format!("OS {} was not installed: {} {}", build.version(), ended.code, ended.sentence));
        }
        calls::wait_phase(&console, &["staged"], Duration::from_secs(5))?;
        let sent = self.server.asked().iter().filter(|asked| asked.path.contains(&sha256)).map(|asked| asked.sent).sum();
        Ok((took, sent))
    }

    /// A good update from its publication to its confirmation, with a model that serves.
    ///
    /// # Errors
    /// A sentence with the step that failed.
    pub fn travel(&mut self, build: Build, stage: &mut Stage, task: &Task) -> Result<Trip, String> {
        let machine = self.machine(stage, task)?;
        machine.serve_model()?;
        let console = machine.console()?;
        let before = written(machine)?;
        let key = self.key(&console)?;
        let served = console.chat(&key, MODEL, "hello").is_ok();
        let (install, sent) = self.stage_over_the_air(build, stage, task)?;
        let image = entry(&self.publisher.channel("stable"), "os")?["bytes"].as_u64().unwrap_or(0);
        let machine = self.machine(stage, task)?;
        let written = written(machine)?.saturating_sub(before);
        let mark = machine.guest()?.serial().mark();
        let probe = Probe::start(&console);
        let begun = Instant::now();
        calls::restart(&console)?;
        machine.wait_version(build.version(), quiet(90))?;
        let (downtime, first) = probe.stop();
        // From the moment the old system let go: everything before is the restart's own time.
        machine.guest()?.wait_after(mark, "(initrd: )", Duration::from_secs(1)).map_err(|e| e.to_string())?;
        let document = calls::wait_confirmed(&console, quiet(60))?;
        let confirmed_after = begun.elapsed();
        let until = Instant::now() + quiet(30);
        let mut model_back = None;
        while served && model_back.is_none() && Instant::now() < until {
            if console.chat(&key, MODEL, "hello").is_ok() {
                model_back = Some(first.map_or(Duration::ZERO, |first| first.elapsed()));
            } else {
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        let boot = machine.plain_boot();
        let trip = Trip { image, sent, install, written, downtime, boot, confirmed_after, served, model_back, document };
        task.log.line(format!("{trip:?}"));
        self.trips.push(trip.clone());
        Ok(trip)
    }

    /// The first good update of the run; made now if there was none.
    ///
    /// # Errors
    /// A sentence with the step that failed.
    pub fn any_trip(&mut self, stage: &mut Stage, task: &Task) -> Result<Trip, String> {
        match self.trips.first() {
            Some(trip) => Ok(trip.clone()),
            None => self.travel(Build::Second, stage, task),
        }
    }
}

/// Bytes written to the machine's disk so far, as its hypervisor counts them.
fn written(machine: &mut UpdateBox) -> Result<u64, String> {
    let stats = machine.guest()?.qmp().call("query-blockstats", serde_json::json!({})).map_err(|e| e.to_string())?;
    let all = stats.as_array().into_iter().flatten();
    Ok(all.filter(|s| s["device"] == "drive0").filter_map(|s| s["stats"]["wr_bytes"].as_u64()).sum())
}

/// Asks for an answer all the time, to see how long there is none.
struct Probe {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(Duration, Option<Instant>)>,
}

impl Probe {
    fn start(console: &Console) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (ending, http) = (stop.clone(), console.http.again(Duration::from_secs(1)));
        let thread = std::thread::spawn(move || {
            let (mut last, mut longest, mut first_after) = (Instant::now(), Duration::ZERO, None);
            while !ending.load(Ordering::Relaxed) {
                if http.get("/healthz").is_ok_and(|reply| reply.status == 200) {
                    if last.elapsed() > longest {
                        (longest, first_after) = (last.elapsed(), Some(Instant::now()));
                    }
                    last = Instant::now();
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            (longest, first_after)
        });
        Self { stop, thread }
    }

    /// The longest silence, and when it ended.
    fn stop(self) -> (Duration, Option<Instant>) {
        // One more answer, so that the silence has an end.
        std::thread::sleep(Duration::from_millis(300));
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or((Duration::ZERO, None))
    }
}

/// `ota-a-b-a`
pub fn a_b_a(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench(stage, task)?;
    let bench = held.get()?;
    let machine = bench.machine(stage, task)?;
    result.expect(machine.version().as_deref() == Some(FIRST), format!("the box begins with {FIRST} ({:?})", machine.version()));
    for (build, version, slot) in [(Build::Second, SECOND, "b"), (Build::Third, THIRD, "a")] {
        let trip = bench.travel(build, stage, task)?;
        let running = running_slot(&trip.document);
        result.expect(running.as_deref() == Some(slot), format!("{version} runs in slot {slot} ({running:?}) and is confirmed"));
        result.expect(trip.document["version"] == version, format!("the page shows {version} ({})", trip.document["version"]));
        let gate: Vec<String> = failed_checks(&trip.document);
        result.expect(gate.is_empty(), format!("no check of the health gate failed ({gate:?})"));
        let entries = bench.machine(stage, task)?.drive().entries()?;
        let name = format!("{slot}.conf");
        result.expect(entries.contains_key(&name), format!("its boot entry counts no tries any more ({:?})", entries.keys()));
        result.note(format!("{version} was confirmed {:.0} s after the restart was asked for", trip.confirmed_after.as_secs_f64()));
    }
    Ok(())
}

/// `models-return`
pub fn models_return(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench(stage, task)?;
    let trip = held.get()?.any_trip(stage, task)?;
    result.expect(trip.served, "the model answered before the update");
    let back = trip.model_back.map(|time| time.as_secs_f64());
    result.expect(back.is_some(), format!("it answers after it, and nobody asked for it ({back:?} s after the first answer of the new system)"));
    let gate = trip.document["gate"].as_array().into_iter().flatten().find(|c| c["code"] == "models");
    let seen = gate.map(|check| check["outcome"].clone()).unwrap_or_default();
    result.expect(seen == "passed", format!("the health gate waited for its token ({seen})"));
    if let Some(back) = back {
        result.figure("model_back_s", back);
    }
    Ok(())
}

/// `figures`
pub fn figures(stage: &mut Stage, task: &Task, result: &mut CaseResult) -> Result<(), String> {
    let mut held = bench(stage, task)?;
    let trip = held.get()?.any_trip(stage, task)?;
    #[allow(clippy::cast_precision_loss, reason = "bytes of one image")]
    let (image, sent, written) = (trip.image as f64, trip.sent as f64, trip.written as f64);
    result.expect(trip.image > 0 && trip.sent >= trip.image, format!("the image has {} bytes, and {} were sent", trip.image, trip.sent));
    let overhead = (sent / image - 1.0) * 100.0;
    result.figure("download_overhead_percent", overhead);
    result.figure("image_bytes", image);
    result.figure("written_bytes", written);
    result.figure("install_s", trip.install.as_secs_f64());
    result.figure("downtime_s", trip.downtime.as_secs_f64());
    result.figure("plain_boot_s", trip.boot.as_secs_f64());
    let without_reboot = (trip.downtime.as_secs_f64() - trip.boot.as_secs_f64()).max(0.0);
    result.figure("downtime_s_plus_reboot", without_reboot);
    result.note(format!(
        "{:.1} MB, {overhead:.2} % more than that downloaded, {:.1} MB written, installed in {:.0} s, {:.0} s without an answer, of which a start takes {:.0} s",
        image / 1e6,
        written / 1e6,
        trip.install.as_secs_f64(),
        trip.downtime.as_secs_f64(),
        trip.boot.as_secs_f64()
    ));
    Ok(())
}

/// The slot that runs, by the document.
#[must_use]
pub fn running_slot(document: &Value) -> Option<String> {
    let slots = document["slots"].as_array()?;
    slots.iter().find(|slot| slot["running"] == true).and_then(|slot| slot["slot"].as_str().map(str::to_owned))
}

/// The codes of the health gate's checks that failed, by the document.
fn failed_checks(document: &Value) -> Vec<String> {
    let checks = document["gate"].as_array().into_iter().flatten();
    checks.filter(|check| check["outcome"] == "failed").map(|check| check["code"].to_string()).collect()
}
