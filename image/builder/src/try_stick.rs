//! `warden-image vm-install`: the stick beside three disks in QEMU. This terminal is the guest's serial line.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use warden_vm::{BuilderRoot, Drive, Guest, Machine};

use crate::cli::{Flavour, Profile};
use crate::fault::{Done, Fault};
use crate::files;
use crate::tool;
use crate::workshop::Workshop;

/// Size of the blank disks, in bytes: a little more than the least.
const BLANK: u64 = 3 << 30;

/// Boots the stick, or with `installed` the disks without it.
pub(crate) fn run(shop: &Workshop, builder: &BuilderRoot, flavour: Flavour, installed: bool) -> Done {
    let out = shop.out(flavour, Profile::Vm);
    let run_dir = out.join("run-install");
    let stick = run_dir.join("stick.img");
    let disks = ["BLANK1", "BLANK2", "OLDER3"].map(|serial| (serial, run_dir.join(format!("{serial}.img"))));
    if !installed {
        files::fresh_dir(&run_dir)?;
        copy(&out.join("stick.img"), &stick, "warden-image stick --profile vm")?;
        copy(&out.join("disk.img"), &disks[2].1, "warden-image image")?;
        for (_, path) in &disks[..2] {
            let file = std::fs::File::create(path).map_err(Fault::io("cannot make", path))?;
            file.set_len(BLANK).map_err(Fault::io("cannot size", path))?;
        }
    }
    let mut machine = Machine::from_drives(disks.iter().map(|(serial, path)| Drive::new(path, serial)).collect());
    if !installed {
        machine.drives.insert(0, Drive::new(&stick, "STICK"));
    }
    for (order, drive) in machine.drives.iter_mut().enumerate() {
        drive.boot_order = u32::try_from(order).ok();
    }
    let mut guest = Guest::start(builder, &machine, &run_dir, true)?;
    println!("The disks lie in {}. Press Ctrl-C to pull the plug.", run_dir.display());
    let mut typed = guest.keyboard()?;
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while let Ok(count @ 1..) = std::io::stdin().read(&mut buffer) {
            if typed.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    });
    let log = guest.serial().path().to_owned();
    let mut said = std::fs::File::open(&log).map_err(Fault::io("cannot read the serial line", &log))?;
    let mut running = true;
    while running {
        running = guest.wait_for_end(Duration::from_millis(100)).is_err();
        let _ = std::io::copy(&mut said, &mut std::io::stdout()).and_then(|_| std::io::stdout().flush());
    }
    println!("\nThe guest has switched itself off. `warden-image vm-install --installed` starts the disks without the stick.");
    Ok(())
}

fn copy(from: &Path, to: &Path, verb: &str) -> Done {
    if !from.is_file() {
        return Err(Fault::refused(from.display().to_string(), "it is not built", format!("run `{verb}` first")));
    }
    tool::run("cp", Command::new("cp").arg("--sparse=always").arg(from).arg(to)).map(drop)
}
