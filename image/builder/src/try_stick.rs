//! `warden-image vm-install`: the stick beside three disks in QEMU. This terminal is the guest's serial line.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use warden_vm::{BuilderRoot, Drive, Guest, Machine};

use crate::cli::{Profile, TryArgs};
use crate::fault::{Done, Fault};
use crate::files;
use crate::tool;
use crate::workshop::Workshop;

/// How long the way to the first question may take with `--until-asked`.
const PATIENCE: Duration = Duration::from_secs(600);

/// Size of the blank disks, in bytes: a little more than the least.
const fn blank(profile: Profile) -> u64 {
    match profile {
        Profile::Vm => 3 << 30,
        Profile::Hardware => 22 << 30,
    }
}

/// Boots the stick, or with `installed` the disks without it.
pub(crate) fn run(shop: &Workshop, builder: &BuilderRoot, args: &TryArgs) -> Done {
    let out = shop.out(args.flavour, args.profile);
    let run_dir = out.join("run-install");
    let (stick, older) = (run_dir.join("stick.img"), run_dir.join("OLDER3.img"));
    let mut disks = vec![("BLANK1", run_dir.join("BLANK1.img")), ("BLANK2", run_dir.join("BLANK2.img"))];
    if !args.installed {
        files::fresh_dir(&run_dir)?;
        copy(&out.join("stick.img"), &stick, &format!("warden-image stick --profile {}", args.profile.name()))?;
        if out.join("disk.img").is_file() {
            copy(&out.join("disk.img"), &older, "warden-image image")?;
        }
        for (_, path) in &disks {
            let file = std::fs::File::create(path).map_err(Fault::io("cannot make", path))?;
            file.set_len(blank(args.profile)).map_err(Fault::io("cannot size", path))?;
        }
    }
    // An older installation takes part where a disk of the same profile was built.
    if older.is_file() {
        disks.push(("OLDER3", older));
    }
    let mut machine = Machine::from_drives(disks.iter().map(|(serial, path)| Drive::new(path, serial)).collect());
    if !args.installed {
        // Only the kernel for hardware has the driver of USB sticks.
        machine.drives.insert(0, Drive { usb: args.profile == Profile::Hardware, ..Drive::new(&stick, "STICK") });
    }
    for (order, drive) in machine.drives.iter_mut().enumerate() {
        drive.boot_order = u32::try_from(order).ok();
    }
    let mut guest = Guest::start(builder, &machine, &run_dir, true)?;
    if args.until_asked {
        guest.wait("Number of the disk", PATIENCE)?;
        println!("{}\nThe installer asks its first question {:.0} s after power-on.", guest.serial().tail(), guest.age().as_secs_f64());
        guest.quit();
        return Ok(());
    }
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
