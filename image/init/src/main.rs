//! The first program of the initrd. It trusts nothing but the signed command line: it finds the disk it was started from, mounts state,
//! counts the start, opens the verified root of the named slot and hands over to it. It never formats, never guesses between two disks and
//! never starts a shell; what it cannot solve it says in one line and restarts, so that the loader's counting goes on.

mod bootdisk;
mod cmdline;
mod count;
mod disks;
mod fatal;
mod files;
mod gpt;
mod handover;
mod installer;
mod modules;
mod mounts;
mod say;
mod state;
mod trouble;
mod verity;

use std::convert::Infallible;
use std::path::Path;

use bootdisk::Layout;
use cmdline::{Cmdline, Start};
use fatal::Fatal;
use state::State;
use trouble::Way;
use warden_bootslot::entry::Slot;

fn main() {
    let Err(fatal) = start();
    say::urgent(&format!("initrd: FATAL {fatal}"));
    handover::restart_after(std::time::Duration::from_secs(5));
}

fn start() -> Result<Infallible, Fatal> {
    mounts::system_folders()?;
    modules::load(Path::new("/m"));
    let test_flavour = Path::new("/etc/warden-test-flavour").exists();
    let line = files::read("/proc/cmdline")?;
    let cmdline = cmdline::parse(&line, test_flavour)?;

    match cmdline.start {
        Start::Slot(slot) => start_slot(slot, &cmdline),
        Start::Installer => installer::start(&cmdline),
    }
}

fn start_slot(slot: Slot, cmdline: &Cmdline) -> Result<Infallible, Fatal> {
    let layout = disks::wait_for_boot_disk(bootdisk::find, mounts::loader_partition().as_deref())?;
    files::make("/run/udev/rules.d/60-warden-disk.rules", &bootdisk::udev_rules(&layout))?;
    let state = state::mount(layout.state.as_ref());
    let count = state.count_start(slot);
    let way = if count.is_some_and(count::in_trouble) { trouble::face(&layout, slot, &state)? } else { Way::On };
    let Err(fatal) = enter_slot(slot, cmdline, &layout, state, way);
    if way == Way::LastResort {
        trouble::recovery_screen(&fatal);
    }
    Err(fatal)
}

fn enter_slot(slot: Slot, cmdline: &Cmdline, layout: &Layout, state: State, way: Way) -> Result<Infallible, Fatal> {
    let device = disks::node(layout.root(slot));
    if way == Way::LastResort {
        // Damage would be met sooner or later and stop the kernel; here it can still be said in words.
        verity::check(&device, cmdline)?;
    }
    verity::open(&device, cmdline)?;
    mounts::root()?;
    state.hand_over()?;
    say::milestone(&format!("initrd: slot {slot} on {} is verified and mounted", layout.disk));
    handover::start_system()
}
