//! What the cases of one run share: where things lie, programs built once, machines booted once.
//!
//! In: places and wishes of the command line. Out: on demand, an agent program, the genuine engine, a tiny model, machines. Whatever
//! it started ends with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use warden_fixtures::TinyModel;

use crate::appliance::Appliance;
use crate::command;
use crate::evidence::MachineEvidence;
use crate::images::{Flavour, Images, PackKind};
use crate::log::CaseLog;
use crate::places::Places;

/// One case at work.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its id.
    pub id: &'static str,
    /// Run with its deliberate break.
    pub sabotage: bool,
    /// Its log.
    pub log: CaseLog,
}

/// Shared between the cases of a run.
pub struct Stage {
    /// Folders.
    pub places: Places,
    /// Take the files as they lie in the working tree where a clean checkout is asked for.
    pub worktree: bool,
    agent: Option<PathBuf>,
    images: Images,
    appliance: Option<Appliance>,
    machines: Vec<MachineEvidence>,
}

impl Stage {
    /// An empty stage.
    #[must_use]
    pub fn new(places: Places, worktree: bool, as_they_are: bool) -> Self {
        Self { places, worktree, agent: None, images: Images::new(as_they_are), appliance: None, machines: Vec::new() }
    }

    /// A stage for what runs beside this one: it sees the images that are built already, and leaves their files to this one.
    #[must_use]
    pub fn second(&self) -> Self {
        Self {
            places: self.places.clone(),
            worktree: self.worktree,
            agent: self.agent.clone(),
            images: self.images.clone(),
            appliance: None,
            machines: Vec::new(),
        }
    }

    /// The appliance of that kind: the one that runs, or a fresh one (then another one that runs is unplugged first: one machine at a
    /// time). It writes to the case's log and goes into the evidence.
    ///
    /// # Errors
    /// A sentence when it does not come up.
    pub fn appliance(&mut self, flavour: Flavour, pack: PackKind, log: &CaseLog) -> Result<&mut Appliance, String> {
        if self.appliance.as_ref().is_some_and(|a| a.kind() != (flavour, pack)) {
            self.unplug();
        }
        let mut appliance = match self.appliance.take() {
            Some(running) => running,
            None => Appliance::power_on(flavour, pack, &mut self.images, &self.places, log)?,
        };
        appliance.log_to(log);
        self.machine_took_part(appliance.evidence().clone());
        Ok(self.appliance.insert(appliance))
    }

    /// Ends the machine that runs, if one does.
    pub fn unplug(&mut self) {
        self.appliance = None;
    }

    /// Images of this run, for cases that look at them without booting.
    pub const fn images(&mut self) -> (&mut Images, &Places) {
        (&mut self.images, &self.places)
    }

    /// Ends everything shared.
    pub fn strike(&mut self) {
        self.unplug();
        self.images.clear();
    }

    /// The agent's program, built once per run from the tree (or named by `WARDEN_AGENT`).
    ///
    /// # Errors
    /// A sentence with the compiler's last words.
    pub fn agent_program(&mut self, log: &CaseLog) -> Result<PathBuf, String> {
        if let Some(program) = &self.agent {
            return Ok(program.clone());
        }
        let program = match std::env::var_os("WARDEN_AGENT") {
            Some(path) => PathBuf::from(path),
            None => {
                let mut cargo = self.in_tree("cargo");
                cargo.args(["build", "--quiet", "--workspace", "--bins"]);
                command::run_ok("building the agent", cargo, Duration::from_secs(1800), log)?;
                self.places.debug_program("warden-agent")
            }
        };
        if !program.is_file() {
            return Err(format!("the agent {} is not there; build it with `cargo build -p warden-agent`", program.display()));
        }
        self.agent = Some(program.clone());
        Ok(program)
    }

    /// The genuine llama-server, built by `make engine` when there is none yet.
    ///
    /// # Errors
    /// A sentence with the build's last words.
    pub fn engine_program(&self, log: &CaseLog) -> Result<PathBuf, String> {
        if let Ok(program) = warden_fixtures::engine::genuine_llama_server() {
            return Ok(program);
        }
        let mut make = self.in_tree("make");
        make.args(["--no-print-directory", "engine"]);
        command::run_ok("make engine", make, Duration::from_secs(3600), log)?;
        warden_fixtures::engine::genuine_llama_server()
    }

    /// Writes the tiny model.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn write_tiny_model(&self, path: &Path) -> Result<(), String> {
        TinyModel::default().write(path).map_err(|e| format!("the tiny model {}: {e}", path.display()))
    }

    /// A command that runs in the project's folder.
    #[must_use]
    pub fn in_tree(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.places.root);
        command
    }

    /// Notes that a machine took part in the present case.
    pub fn machine_took_part(&mut self, machine: MachineEvidence) {
        if !self.machines.contains(&machine) {
            self.machines.push(machine);
        }
    }

    /// Hands over the machines of the case that just ended, with what was learnt of them since they were noted.
    pub fn take_machines(&mut self) -> Vec<MachineEvidence> {
        let mut machines = std::mem::take(&mut self.machines);
        if let Some(now) = self.appliance.as_ref().map(Appliance::evidence) {
            machines.iter_mut().filter(|m| m.serial_log == now.serial_log).for_each(|m| m.clone_from(now));
        }
        machines
    }
}
