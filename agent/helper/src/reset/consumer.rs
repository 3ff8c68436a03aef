//! The one order of things at a start: a record goes on the list of consumed ones, then disappears, and only then is acted on; when all
//! is done the list says so. A power cut at any point leaves either a record that nobody accepted yet, or an entry that the next start
//! finishes. At the very end the epoch changes, so that nothing from before counts any more.

use std::io;
use std::path::Path;

use thiserror::Error;

use super::decide::{Found, Verdict, plan};
use super::desk::{Desk, EPOCH, JOURNAL, REQUEST};
use super::journal::{Entry, Journal};
use super::record::{self, Record};
use super::scope::Scope;
use super::sweep;

/// How the start goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As usual.
    GoOn,
    /// The machine restarts first, so that everything begins with its new identity.
    Restart,
}

/// Why the check of resets could not be finished. The next start tries again.
#[derive(Debug, Error)]
pub enum Fault {
    /// A file of the folder of resets.
    #[error("the file {0} in the folder of resets cannot be read or written: {1}; check the state partition")]
    Desk(&'static str, io::Error),
    /// The steps of a reset.
    #[error("the {0} reset {1} broke off and goes on at the next start: {2}")]
    Steps(&'static str, String, io::Error),
}

/// The outside of a run: the rest of the machine, and where a test cuts the power.
pub struct World<'a> {
    /// The data partition.
    pub data: &'a Path,
    /// Whether the data partition is there; waits for it for a while.
    pub data_is_there: &'a mut dyn FnMut() -> bool,
    /// Fresh random bytes.
    pub random: &'a mut dyn FnMut() -> [u8; 16],
    /// The log.
    pub say: &'a mut dyn FnMut(&str),
    /// Called before each change; an error stands for a power cut.
    pub step: &'a mut dyn FnMut(&'static str) -> io::Result<()>,
}

/// Does what this start has to do about resets.
///
/// # Errors
/// The first thing that could not be done. What was begun is finished at the next start.
pub fn run(desk: &Desk, world: &mut World<'_>) -> Result<End, Fault> {
    let at = |name: &'static str| move |error| Fault::Desk(name, error);
    let here = desk.here().map_err(at("."))?;
    let request = desk.request().map_err(at(REQUEST))?;
    let journal = desk.journal().map_err(at(JOURNAL))?;
    let epoch = desk.epoch().map_err(at(EPOCH))?;
    let plan = plan(&here, &Found { request: request.as_deref(), journal: journal.as_ref(), epoch: epoch.as_deref() });

    let mut list = journal.clone().unwrap_or_default();
    let mut end = End::GoOn;
    if let Some(entry) = &plan.resume {
        (world.say)(&format!("the {} reset {} was broken off and is finished now", entry.record.scope.word(), entry.record.id));
        end = act(desk, world, &mut list, entry)?;
    }
    match &plan.request {
        Verdict::Nothing => {}
        Verdict::Ignore(why) => {
            let id = request.as_deref().and_then(Record::parse).map_or_else(|| "without an id".to_owned(), |record| record.id);
            (world.say)(&format!("a reset request ({id}) is removed and not followed: {why}"));
            take(desk, world)?;
        }
        Verdict::Follow(record) => {
            (world.say)(&format!("the {} reset {} is consumed", record.scope.word(), record.id));
            list = list.begun(record);
            put_list(desk, world, &list)?;
            take(desk, world)?;
            let entry = list.unfinished().cloned();
            if let Some(entry) = entry {
                end = act(desk, world, &mut list, &entry)?;
            }
        }
    }
    if journal.is_none() {
        put_list(desk, world, &list)?;
    }
    (world.step)("epoch").and_then(|()| desk.put(EPOCH, &format!("{}\n", record::id((world.random)())))).map_err(at(EPOCH))?;
    Ok(end)
}

fn take(desk: &Desk, world: &mut World<'_>) -> Result<(), Fault> {
    (world.step)("take").and_then(|()| desk.take(REQUEST)).map_err(|error| Fault::Desk(REQUEST, error))
}

fn put_list(desk: &Desk, world: &mut World<'_>, list: &Journal) -> Result<(), Fault> {
    (world.step)("list").and_then(|()| desk.put(JOURNAL, &list.render())).map_err(|error| Fault::Desk(JOURNAL, error))
}

fn act(desk: &Desk, world: &mut World<'_>, list: &mut Journal, entry: &Entry) -> Result<End, Fault> {
    let record = &entry.record;
    let broke = |error| Fault::Steps(record.scope.word(), record.id.clone(), error);
    let mut remark = None;
    let end = match record.scope {
        Scope::Admin => End::GoOn,
        Scope::Network => {
            (world.step)("network").and_then(|()| sweep::network(&desk.state)).map_err(broke)?;
            End::GoOn
        }
        Scope::Factory { keep_models } => {
            if (world.data_is_there)() {
                (world.step)("data").and_then(|()| sweep::data(world.data, keep_models)).map_err(broke)?;
            } else {
                remark = Some("The data partition was not there: models and records on it were not removed.".to_owned());
            }
            (world.step)("state").and_then(|()| sweep::state(&desk.state)).map_err(broke)?;
            End::Restart
        }
    };
    *list = list.finished(&record.id, remark);
    put_list(desk, world, list)?;
    (world.say)(&format!("the {} reset {} is done", record.scope.word(), record.id));
    Ok(end)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::scope::Asker;
    use super::*;

    struct Box_ {
        top: tempfile::TempDir,
        desk: Desk,
        number: u8,
    }

    impl Box_ {
        fn new() -> Self {
            let top = tempfile::tempdir().unwrap();
            let state = top.path().join("state");
            for folder in ["state/reset", "state/warden", "state/network/connections", "data/models", "data/packs"] {
                fs::create_dir_all(top.path().join(folder)).unwrap();
            }
            let desk = Desk { state, product: top.path().join("product") };
            let mut made = Self { top, desk, number: 0 };
            made.furnish();
            made.start(None).unwrap();
            made
        }

        fn furnish(&self) {
            for file in ["state/warden/config.db", "state/network/connections/lan", "state/machine-id", "data/models/a.gguf", "data/packs/p.raw"] {
                let path = self.top.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "0123456789abcdef0123456789abcdef\n").unwrap();
            }
        }

        fn there(&self, file: &str) -> bool {
            self.top.path().join(file).exists()
        }

        /// One start; the power is cut before the change of that number.
        fn start(&mut self, cut: Option<usize>) -> Result<(End, Vec<String>), Fault> {
            let (mut said, mut count, mut number) = (Vec::new(), 0, self.number);
            let data = self.top.path().join("data");
            let end = run(
                &self.desk,
                &mut World {
                    data: &data,
                    data_is_there: &mut || true,
                    random: &mut || {
                        number += 1;
                        [number; 16]
                    },
                    say: &mut |line| said.push(line.to_owned()),
                    step: &mut |name| {
                        count += 1;
                        if cut == Some(count) { Err(io::Error::other(format!("the power is cut before {name}"))) } else { Ok(()) }
                    },
                },
            );
            self.number = number;
            end.map(|end| (end, said))
        }

        fn ask(&mut self, scope: Scope) -> String {
            self.number += 1;
            let epoch = self.desk.epoch().unwrap().unwrap();
            let record = Record::new(record::id([self.number | 0x80; 16]), scope, Asker::Screen, &self.desk.here().unwrap(), &epoch);
            self.desk.put(REQUEST, &record.render()).unwrap();
            record.render()
        }
    }

    const SCOPES: [Scope; 4] = [Scope::Network, Scope::Admin, Scope::Factory { keep_models: true }, Scope::Factory { keep_models: false }];

    fn effect(b: &Box_, scope: Scope) -> bool {
        match scope {
            Scope::Network => !b.there("state/network/connections/lan") && b.there("state/warden/config.db"),
            Scope::Admin => b.desk.journal().unwrap().unwrap().handed().is_some() && b.there("state/warden/config.db"),
            Scope::Factory { keep_models } => {
                let id = fs::read_to_string(b.top.path().join("state/machine-id")).unwrap_or_default();
                !b.there("state/warden") && !id.starts_with('0') && b.there("data/models/a.gguf") == keep_models && b.there("data/packs/p.raw")
            }
        }
    }

    #[test]
    fn a_reset_is_done_once_and_the_record_is_gone() {
        for scope in SCOPES {
            let mut b = Box_::new();
            b.ask(scope);
            let (end, _) = b.start(None).unwrap();
            assert_eq!(end == End::Restart, matches!(scope, Scope::Factory { .. }));
            assert!(effect(&b, scope) && !b.there("state/reset/request"), "{scope:?}");
            b.furnish();
            assert_eq!(b.start(None).unwrap().0, End::GoOn);
            assert!(b.there("state/network/connections/lan") && b.there("state/warden/config.db") && b.there("data/models/a.gguf"));
        }
    }

    #[test]
    fn a_record_put_back_does_nothing_at_any_later_start() {
        for scope in SCOPES {
            let mut b = Box_::new();
            let text = b.ask(scope);
            b.start(None).unwrap();
            b.furnish();
            for _ in 0..3 {
                b.desk.put(REQUEST, &text).unwrap();
                let (end, said) = b.start(None).unwrap();
                assert_eq!(end, End::GoOn);
                assert!(said.iter().any(|line| line.contains("not followed")), "{said:?}");
                assert!(b.there("state/network/connections/lan") && b.there("state/warden/config.db") && !b.there("state/reset/request"));
            }
        }
    }

    #[test]
    fn an_old_list_and_the_old_record_together_do_nothing_either() {
        let mut b = Box_::new();
        let before = fs::read(b.desk.folder().join(JOURNAL)).unwrap_or_default();
        let text = b.ask(Scope::Network);
        b.start(None).unwrap();
        b.furnish();
        fs::write(b.desk.folder().join(JOURNAL), if before.is_empty() { Journal::default().render().into_bytes() } else { before }).unwrap();
        b.desk.put(REQUEST, &text).unwrap();
        b.start(None).unwrap();
        assert!(b.there("state/network/connections/lan"));
    }

    #[test]
    fn a_record_carried_to_another_machine_does_nothing() {
        let mut b = Box_::new();
        b.ask(Scope::Factory { keep_models: false });
        fs::write(b.top.path().join("product"), "another board\n").unwrap();
        let (end, said) = b.start(None).unwrap();
        assert_eq!(end, End::GoOn);
        assert!(b.there("state/warden/config.db") && said.iter().any(|line| line.contains("another machine")));
    }

    #[test]
    fn a_power_cut_at_any_point_is_finished_by_the_next_start_and_only_once() {
        for scope in SCOPES {
            for cut in 1.. {
                let mut b = Box_::new();
                let text = b.ask(scope);
                let broken = b.start(Some(cut)).is_err();
                if !broken {
                    assert!(cut > 2, "the run has steps to be cut at");
                    break;
                }
                if !b.there("state/machine-id") {
                    // The initrd of the next start makes another id.
                    fs::write(b.top.path().join("state/machine-id"), "f".repeat(32)).unwrap();
                }
                b.start(None).unwrap();
                assert!(effect(&b, scope), "{scope:?} cut before change {cut}");
                b.furnish();
                b.desk.put(REQUEST, &text).unwrap();
                assert_eq!(b.start(None).unwrap().0, End::GoOn, "{scope:?} cut before change {cut}");
                assert!(b.there("state/network/connections/lan") && b.there("state/warden/config.db") && b.there("data/models/a.gguf"));
            }
        }
    }

    #[test]
    fn a_damaged_list_refuses_the_record_and_begins_anew() {
        let mut b = Box_::new();
        b.ask(Scope::Network);
        fs::write(b.desk.folder().join(JOURNAL), "{ torn").unwrap();
        let (_, said) = b.start(None).unwrap();
        assert!(b.there("state/network/connections/lan") && said.iter().any(|line| line.contains("cannot be read")));
        b.ask(Scope::Network);
        b.start(None).unwrap();
        assert!(!b.there("state/network/connections/lan"));
    }

    #[test]
    fn a_missing_data_partition_is_remarked_and_does_not_stop_the_reset() {
        let mut b = Box_::new();
        b.ask(Scope::Factory { keep_models: false });
        let data = b.top.path().join("data");
        let mut world = World { data: &data, data_is_there: &mut || false, random: &mut || [9; 16], say: &mut |_| {}, step: &mut |_| Ok(()) };
        assert_eq!(run(&b.desk, &mut world).unwrap(), End::Restart);
        let journal = b.desk.journal().unwrap().unwrap();
        assert!(journal.resets.last().unwrap().remark.as_ref().unwrap().contains("not there"));
        assert!(b.there("data/models/a.gguf") && !b.there("state/warden"));
    }
}
