//! Joins updates with the machine and the other rooms: what runs here, which slot's data is opened, what the box is like before a trial.
//!
//! The one place of the agent that knows that a database belongs to a slot.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use rauc_client::Rauc;
use warden_domain::{
    Problem, ProblemKind,
    change::Changes,
    machine::{Machine, Power},
    model::{Registry, StateWord},
    replica::Serving,
    storage::Storage,
    tasks::Tasks,
    time::Time,
    update::Updates,
};
use warden_gateway::FlightTable;
use warden_platform::{ApplianceMachine, bus::Bus};
use warden_store::{Store, slots};
use warden_updater::{
    BeforeFacts, Host, Parts, Places, Rules, UpdateRoom,
    record::{self, Record, ServedModel, Slot},
    start::{StartFacts, at_start},
};

use crate::{
    config::{Config, Profile},
    status,
};

/// An install that does not move for so long is given up.
const STALL: Duration = Duration::from_secs(900);

/// The running system.
pub(crate) struct Running {
    /// Its version: the image's on the appliance, else the agent's.
    pub(crate) version: &'static str,
    slot: Option<Slot>,
    boot_id: String,
    counted: bool,
    places: Places,
}

impl Running {
    /// Reads it; once per run.
    pub(crate) fn look(config: &Config) -> Self {
        let appliance = config.profile == Profile::Appliance;
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let image = if appliance { record::image_version(&read("/usr/lib/os-release")) } else { None };
        let beside = |name: &str| if appliance { PathBuf::from("/state").join(name) } else { config.state_dir.join(name) };
        Self {
            // For the whole run, like the agent's own version.
            version: image.map_or(crate::config::VERSION, |version| Box::leak(version.into_boxed_str())),
            slot: if appliance { record::slot_of(&read("/proc/cmdline")) } else { None },
            boot_id: record::boot_id().unwrap_or_default(),
            counted: record::counted(),
            places: Places {
                state: beside("update"),
                health: beside("health"),
                boot: beside("boot"),
                files: config.data_dir.join("warden/updates"),
                packs: config.data_dir.join("packs"),
                models: config.models_dir(),
                trust: config.update_trust_dir.clone(),
            },
        }
    }

    /// Opens the database that belongs to this start: the usual one, on trial with few migrations, or this slot's own copy after a
    /// fall-back. Also what only the newer file holds then, as a sentence.
    pub(crate) fn open_store(&self, config: &Config) -> Result<(Store, Option<String>), Problem> {
        let Some(slot) = self.slot else { return Ok((Store::open(&config.state_dir)?, None)) };
        let facts = slots::RecordFacts { running_slot: slot.name().to_owned(), situation: self.situation() };
        let (store, opening) = slots::open(&config.state_dir, &facts)?;
        let left = opening.kept.as_ref().map(|kept| {
            let copy = config.state_dir.join(format!("config.{slot}.db"));
            left_behind(slots::changed_since(&copy, kept))
        });
        Ok((store, left))
    }

    /// How this start relates to an update; the same decision as the update room's, before anything is written.
    fn situation(&self) -> slots::Situation {
        let Ok(Some(found)) = record::read::<Record>(&self.places.state) else { return slots::Situation::Usual };
        let facts = StartFacts {
            running: self.slot,
            boot_id: self.boot_id.clone(),
            counted: self.counted,
            verdict: record::read(&self.places.health).ok().flatten(),
            fallback: record::read(&self.places.boot).ok().flatten(),
            target: None,
            now: warden_domain::clock::now(),
        };
        match at_start(&found, &facts).record {
            Record::Trial { attempt, target_slot, .. } => {
                let previous_slot = attempt.running.slot.unwrap_or(target_slot.other()).name().to_owned();
                slots::Situation::OnTrial { previous_slot }
            }
            Record::RolledBack { attempt, .. } => slots::Situation::RolledBack { transaction: attempt.transaction.to_string() },
            _ => slots::Situation::Usual,
        }
    }
}

/// What the owner lost with a fall-back, by name.
fn left_behind(found: Result<slots::Differences, warden_store::StoreError>) -> String {
    let kept = "The newer database is kept beside this system's copy.";
    match found {
        Err(cause) => format!("{kept} What differs cannot be told: {cause}"),
        Ok(found) if found.changes.is_empty() => "No account, key, model or setting was changed meanwhile.".to_owned(),
        Ok(found) => {
            let names: Vec<String> = found.changes.iter().take(12).map(|change| change.name.clone()).collect();
            let more = found.changes.len().saturating_sub(names.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("Changed meanwhile and not here: {}{more}. {kept}", names.join(", "))
        }
    }
}

/// What the update room is made from.
pub(crate) struct Rooms {
    pub(crate) store: Store,
    pub(crate) bus: Arc<Bus>,
    pub(crate) time: Arc<dyn Time>,
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) serving: Arc<dyn Serving>,
    pub(crate) flights: Arc<FlightTable>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) machine: Arc<dyn Machine>,
    pub(crate) changes: Changes,
    pub(crate) tasks: Tasks,
    pub(crate) console_port: u16,
    pub(crate) left_behind: Option<String>,
}

/// Opens the update room.
pub(crate) async fn open(config: &Config, running: &Running, rooms: Rooms) -> Result<Arc<UpdateRoom>, Problem> {
    let machine = warden_updater::Machine {
        version: running.version.to_owned(),
        slot: running.slot,
        boot_id: running.boot_id.clone(),
        counted: running.counted,
        id: record::machine_id().unwrap_or_else(|_| status::host_name()),
        data_needs: u32::try_from(rooms.store.readable_from().await?).unwrap_or(0),
    };
    let (changes, tasks, left_behind) = (rooms.changes.clone(), rooms.tasks.clone(), rooms.left_behind.clone());
    let host = Arc::new(ThisMachine {
        appliance: config.profile == Profile::Appliance,
        slot: running.slot,
        state_dir: config.state_dir.clone(),
        data_dir: config.data_dir.clone(),
        rooms,
    });
    let parts = Parts { places: running.places.clone(), machine, host, changes, tasks, rules: Rules::default(), stall: STALL, left_behind };
    UpdateRoom::open(parts).await
}

struct ThisMachine {
    appliance: bool,
    slot: Option<Slot>,
    state_dir: PathBuf,
    data_dir: PathBuf,
    rooms: Rooms,
}

#[async_trait]
impl Host for ThisMachine {
    fn cannot_install(&self) -> Option<String> {
        let words = match (self.appliance, self.slot) {
            (true, Some(_)) => return None,
            (true, None) => "This system was not started from one of the two slots, so there is none to install into.",
            (false, _) => "This is not the appliance: its system belongs to somebody else. Updates can be looked for, fetched and checked here.",
        };
        Some(words.to_owned())
    }

    fn is_appliance(&self) -> bool {
        self.appliance
    }

    async fn rauc(&self) -> Result<Rauc, Problem> {
        let bus = self.rooms.bus.get().await?;
        Rauc::new(&bus).await.map_err(|cause| Problem::new(ProblemKind::SystemService, cause.to_string()))
    }

    async fn clock_confirmed(&self) -> bool {
        self.rooms.time.document().await.state.synchronized == Some(true)
    }

    async fn before(&self) -> BeforeFacts {
        let states = self.rooms.serving.states();
        let models = self.rooms.registry.list().await.unwrap_or_default();
        let served = models.into_iter().filter(|model| states.get(&model.id).is_some_and(|state| state.state == StateWord::Running));
        let overview = self.rooms.storage.overview().await.unwrap_or_default();
        let mut contents = overview.disks.iter().flat_map(|disk| &disk.contents);
        BeforeFacts {
            management_addresses: status::own_addresses(),
            console_port: self.rooms.console_port,
            data_uuid: contents.find(|content| content.mounted_at.contains(&self.data_dir)).and_then(|content| content.uuid.clone()),
            served_models: served.map(|model| ServedModel { name: model.config.served_name, ready_after_s: None }).collect(),
            // The gate does not look at cards yet; what nobody knew is no reason to fail.
            gpu_count: None,
            gpu_driver: None,
        }
    }

    fn in_flight(&self) -> usize {
        self.rooms.flights.all()
    }

    async fn restart(&self) -> Result<(), Problem> {
        self.rooms.machine.power(Power::Reboot).await
    }

    async fn other_slot_next(&self) -> Result<(), Problem> {
        ApplianceMachine::roll_back().await
    }

    async fn other_slot_never(&self) -> Result<(), Problem> {
        ApplianceMachine::give_up_other().await
    }

    async fn keep_data(&self) -> Result<(), Problem> {
        let Some(slot) = self.slot else { return Ok(()) };
        let folder = self.state_dir.clone();
        let copied = tokio::task::spawn_blocking(move || slots::prepare_trial(&folder, slot.name())).await;
        let copied = copied.map_err(|cause| Problem::internal(format!("The copy of the settings broke off: {cause}.")))??;
        tracing::info!(path = %copied.path.display(), bytes = copied.bytes, "the settings were copied for the way back");
        Ok(())
    }

    async fn confirmed(&self) {
        if let Err(error) = self.rooms.store.finish_migrations().await {
            tracing::error!(%error, "the database of the confirmed system could not be brought to its newest form");
        }
    }
}

/// The machine, told of updates: what is staged is tried at the next start, whoever restarts it.
pub(crate) struct ToldMachine {
    pub(crate) inner: Arc<dyn Machine>,
    pub(crate) updates: Arc<dyn Updates>,
}

#[async_trait]
impl Machine for ToldMachine {
    fn offered(&self) -> bool {
        self.inner.offered()
    }

    async fn power(&self, power: Power) -> Result<(), Problem> {
        self.updates.before_power().await;
        let done = self.inner.power(power).await;
        if done.is_err() {
            self.updates.power_failed().await;
        }
        done
    }

    async fn request_factory_reset(&self, keep_models: bool) -> Result<String, Problem> {
        self.inner.request_factory_reset(keep_models).await
    }

    async fn handed_admin_reset(&self) -> Option<String> {
        self.inner.handed_admin_reset().await
    }

    async fn confirm_admin_reset(&self, id: &str) -> Result<(), Problem> {
        self.inner.confirm_admin_reset(id).await
    }
}
