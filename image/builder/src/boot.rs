//! `warden-image vm`: boots a built disk in QEMU and tells when it reaches what, until it is switched off or interrupted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use warden_vm::{BuilderRoot, Forward, Guest, Machine, PowerOn, quiet};

use crate::cli::{Flavour, Profile, VmArgs};
use crate::fault::{Done, Fault};
use crate::workshop::Workshop;

/// Boots the disk of a flavour.
pub(crate) fn boot(shop: &Workshop, builder: &BuilderRoot, args: &VmArgs) -> Done {
    let out = shop.out(args.flavour, Profile::Vm);
    let disk = out.join("disk.img");
    if !disk.is_file() {
        return Err(Fault::refused(disk.display().to_string(), "the image is not built", "run `warden-image image` first"));
    }
    let mut machine = Machine::from_disk(&disk);
    machine.memory_mib = args.memory;
    machine.forwards.extend([Forward { host: args.port, guest: 443 }, Forward { host: args.plain_port, guest: 80 }]);
    let run_dir = out.join("run");
    let stalled = |_: &Guest| println!("the emulator lost its timers; switching on once more");
    let first = (r"initrd: ", quiet(40));
    let PowerOn { mut guest, said, .. } = Guest::start_until(builder, &machine, &run_dir, !args.keep, first, |_| Ok(()), stalled)?;
    println!("serial log: {}", shown(&run_dir.join("console.log"), shop));
    println!("console:    https://127.0.0.1:{}/ui/", args.port);
    println!("authority:  http://127.0.0.1:{}/ca.crt (to trust it), /fingerprint (to compare it with the screen)", args.plain_port);
    if args.flavour == Flavour::Test {
        println!("root shell: on the guest's second serial port, for tests");
    }
    said?;
    told(&guest, "the initrd speaks");
    guest.wait(r"(?i)LM Warden", quiet(40))?;
    told(&guest, "the system speaks on the serial console");
    wait_for_health(&mut guest, args)?;
    if args.until_up {
        guest.power_off(quiet(30))?;
        told(&guest, "switched off");
        return Ok(());
    }
    println!("press Ctrl-C to pull the plug");
    guest.wait_for_end(Duration::from_secs(args.hours * 3600))?;
    println!("the guest has switched itself off");
    Ok(())
}

/// Waits until the agent answers through the forwarded ports. The plain one speaks for both: the agent serves neither without the other.
fn wait_for_health(guest: &mut Guest, args: &VmArgs) -> Done {
    let end = guest.age() + quiet(40);
    while guest.age() < end {
        if answers(args.plain_port) {
            told(guest, "the agent answers on the host");
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Err(Fault::refused(
        "/ca.crt",
        format!("no answer within {} s; the serial log ends with:\n{}", end.as_secs(), guest.serial().tail()),
        "read the whole log",
    ))
}

fn answers(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(format!("GET /ca.crt HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut answer = [0u8; 12];
        stream.read_exact(&mut answer)?;
        Ok(&answer[8..] == b" 200")
    };
    ask().unwrap_or(false)
}

fn told(guest: &Guest, what: &str) {
    let cpu = guest.cpu_seconds().map_or_else(String::new, |s| format!(", {s:.0} CPU seconds"));
    println!("{:>7.1} s  {what}{cpu}", guest.age().as_secs_f64());
}

fn shown(path: &Path, shop: &Workshop) -> String {
    path.strip_prefix(&shop.project).unwrap_or(path).display().to_string()
}
